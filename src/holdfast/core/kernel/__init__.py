"""The kernel: how one decision moves tokens through the graph.

`core/decide.py` is the only way in: a graph, an instance, a signal and facts go in, a decision comes out. The function
is pure. It sees no clock, no randomness and no I/O; time and ids come in as facts or are derived. The same arguments
give the same decision today, in a retried batch, in a replay and in a property test. That is the whole contract, and
the rest of the engine is built on it. This is the theory behind it.

**The graph.** Every door compiles to the same graph: nodes and edges. The kernel knows a node by its behaviour alone,
and there are eight. *pass* is decided at once. *work* waits for a handler. *call* runs a function inside the commit.
*rest* waits for an event, a person or a sub-flow. *timer* waits for a moment. *emit* writes an effect. *join* meets
other tokens. *end* finishes. A node's kind (`task`, `approval`, `webhook_out`) is a row in a table of the graph and
selects one of them.

**Tokens.** The position of an instance is a set of tokens, most often one. A token has a *path*, its place in the tree
of splits (`0` is the root, `0/3.1` the branch 1 of the split at hop 3), and a *hop*, which rises by one with every
move. Path and hop identify a visit for ever: laps of a loop differ by hop, branches by path. Step ids, receipts and
idempotency keys are derived from them, so nothing has to be numbered by the database.

**A decision has two strides.** First the module that knows the signal (in `core/signals`) applies it: it closes the
step that was answered, and sets the token in motion. Then `walk` drains the moves. A move enters a node; by its
behaviour it ends in an open step, in a meeting or in the end of the token, or it leaves the node and causes the next
move. The compiler has proved that automatic nodes alone form no cycle, so the walk ends.

**Entering and leaving.** `enter` has one function per behaviour. `leave` closes the open step, merges its output and
asks `routing` for an edge: the first by (priority, id) whose event, condition and guard hold, else the default edge.
Only a split takes several edges. The evaluation is recorded with the step, so the audit trail shows the reason for
every turn.

**Scopes.** A split opens a scope with one branch per edge; a join or an escape closes it. `all` fires when every branch
has arrived, ended or failed; `any` fires with the first arrival and cancels the others, with audit rows. The scope is
removed in the decision that fires its join, so a join cannot fire twice. An edge that leads out of a scope is an
escape: the siblings end, and the parent continues.

**Failure.** A failed attempt is first offered a retry, by the policy of its node. A step that failed for good takes its
`error` or `timeout` edge if there is one. Otherwise the failure may cost only a branch of an `any` join, or it meets
the policy of the graph: roll back, wait for a repair (DLQ mode), suspend, or fail. The choice is made before the row is
written, because the row has to tell it.

**The outcome.** A decision is data: the new state of the instance, steps opened and closed, work to dispatch,
timers, effects, tasks, lines of the audit trail, and *needs*: facts that only the database has, such as the history for
a rollback. The committer answers a need and decides again, in the same transaction. The kernel does not know how any of
it is stored, and no part of it is visible before the commit.

**Illegal and stale signals.** A signal the instance cannot take is refused with one type of error and changes nothing.
So is one that names a step or a wait the instance has left behind. Correctness never depends on a queued message being
deleted in time.

**Fast paths.** Most decisions are a start, a result that opens the next step, or an end. `core/fast` computes these
without the machinery here, and gives up where anything is unusual. A property test holds both to the same outcome, so
read the kernel first: it is the definition, and the fast paths are its shorthand.

Read on: `builder.py` (the decision in the making), `walk.py`, `enter.py`, `leave.py`, `routing.py`, `scopes.py`,
`failure.py`, `retry.py`, `schedule.py` and `finish.py` (the state after the decision).
"""
