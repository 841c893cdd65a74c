"""Machines in the core: triggers move a state, facts tell of it, gates hold it, timeouts move it on.

A machine is a graph of states, and its one token rests in one of them. A *trigger* brings an event; the kernel chooses
the edge as for any event. An event that cannot be applied is an answer and no error, because senders race by design.

**Facts.** Entering a state by an event emits a transition, and the hooks of the rule for that event. A fact is data of
the decision. The store writes it, and a record for every consumer that takes it, in the same commit; whether a consumer
is alive plays no part.

**Gates.** Hooks with an order form phases. The gates of the present phase are waits of the token, so they are in the
snapshot, and replay restores them. While one is open, triggers are answered "blocked". The store knows which consumers
a gate has; once their answers settle it, the shell says so with `GateDone`, and the next phase goes out. After the last
gate, exactly one *complete* fact names the event to send. The engine never sends it.

**Timeouts.** A timeout with an event is a timer of the stay and is decided as that event, by the system. It passes
gates: it is the way out of a state whose consumers never answer. One without an event writes a notice.

Read on: `triggers.py` (the decision on an event), `stays.py` (what entering a state brings), `gates.py` (phases),
`timeouts.py`, `facts.py` (their form), `acks.py` (what an answer of a consumer changes).
"""
