"""The committer: from gathered items to committed decisions.

Every change of an instance goes through here: a handler's result, a start, a cancel from the API, a timer that fired,
an event out of the queue. Each is an *item* with one signal. The committer turns items into commits, and a commit is
one PostgreSQL transaction for many instances. This is the theory behind it.

**Why batches.** A transaction has a price that does not depend on its size: round trips, locks, a WAL flush. Paid per
step, it limits an engine to some hundred steps a second. So items wait in a buffer, and a *lane* takes all of them at
once, decides each in memory and writes the results with one statement per table. Two lanes take turns: while one waits
for PostgreSQL, the other decides and encodes. An idle lane takes an item immediately, so a lone flow never waits for
company; a lane waits a moment (`linger`) only while the other one is busy. Batches grow with load by themselves.

**One writer per instance.** Two lanes never hold the same instance, and two processes cannot: the writer of an
instance is the holder of its row lock, in the order of ids. A lane skips an instance that is locked elsewhere and
comes back to it. Handlers, effects, sub-flows and a caller's own transaction never lock an instance. They insert a
signal, and the committer applies it.

**Decide as often as you like.** `decide` is pure: graph, instance, signal and facts in, decision out, nothing touched.
So a batch can be thrown away and made again from the same items at no cost but time. The whole handling of failures
rests on this. It is also why nothing outside may learn of a decision early: handlers of the next step start, callers
get answers and hooks are called only after the COMMIT was answered.

**The safe commit is two flushes.** The first locks the instances, verifies the cached snapshots, claims signals and
reads the clock. Then the lane decides. The second writes and commits. Every write carries its own guard: the revision
the decision was made on, the fence the result was produced under, the open status a close expects. A statement counts
its rows, and a missing row raises before COMMIT. A guard that does not hold is no error but a race: another writer was
faster, and the batch is decided again on fresh data.

**The fast commit is one flush.** Where all items are results of steps leased to this worker, over snapshots that this
process wrote itself, or starts of new instances, no other writer is expected, and the first flush would only confirm
known facts. So the lane decides at once and sends everything. The guards are the same. If the expectation was wrong,
the database refuses the commit as a whole, and it is made again with locks first. The time for such a decision comes
from a running estimate of the database's clock.

**A decision can need more than a signal.** It may open a wait that an early event already answers, start a sub-flow,
or begin a rollback, for which it needs the history of its instance. These follow-ups run in the same transaction:
read, decide again with the answer, until no need is left. In the common case there is none.

**A COMMIT without an answer.** The connection can break between COMMIT and its answer; then the outcome is unknown.
It is never guessed. The items return to the buffer marked as unsure, the snapshots of their instances are forgotten,
and every item is sent again with its receipt. If the first COMMIT took effect, the receipt exists, and the repetition
is recognised.

**When a commit fails**, the class of the failure decides. A *race* is decided again. *Passing* trouble (a
serialisation failure, a lock timeout, a full disk) retries the batch as it is and blames no item. A refusal of *data*
takes the batch apart by halves, in fresh transactions, until one item is left; only that one is counted, failed or
made a dead letter, and its neighbours are stored on the way. A *systemic* failure (schema, privileges) drops nothing:
it raises an alarm and waits. If instance after instance is refused in the same way, the data is not to blame, and the
failure counts as systemic too.

**When a decision kills the process**, its count of attempts is rolled back with everything else, and the next process
would claim the same signal, for ever. So a worker that starts after an unclean death is careful at first: it takes
queued signals one at a time and commits the attempt before the decision.

**What leaves the buffer.** A handler's result leaves it only after its commit, or after the database has said that the
lease is gone. Then another worker owns the step, and the result is history.

Read on: `committer.py` (lanes), `batch.py` (one commit in the making), `items.py` (the inputs), `follow_ups.py`,
`instance_cache.py` and `history_cache.py` (memory of this process), `starter.py` (starts that only store),
`clock.py`, and for the bad days `failures.py`, `classify.py`, `bisect.py`, `crash_guard.py`.
"""
