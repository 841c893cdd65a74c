"""The commit: locks, reads and writes of one batch of decisions.

The committer (`runtime/commit`) decides in memory; this package locks and reads the rows that a batch builds on, and
writes its decisions as rows. It has no policy: every guard that fails is raised, and the committer knows the remedy.
This is the theory behind it.

**One statement per table.** A batch holds decisions of up to some hundred instances. Their rows are gathered by table,
and each table is written by one statement that takes its rows as arrays. The number of statements depends on the
tables touched, never on the number of rows. All of them travel in one flush with COMMIT at the end, so a batch costs
one round trip and one WAL flush.

**Every write carries its guard.** There is no "read, think, write" that relies on luck in between. An update of an
instance names the version it was decided on. A change of work names the worker and the fence that hold the lease. A
close expects the step to be open. A receipt is a plain INSERT into a unique key. Each statement counts its rows in the
server and raises when one is missing, before COMMIT. So a transaction takes effect as a whole or not at all, and a lost
race is an error that the committer recognises, never a silent half.

**One lock order, for everything in the store**: instances (by id), event keys, work (by instance and path), signals,
the rest. The holder of an instance's row lock is its single writer, and owns its signals, timers, steps and work.
Loops of the engine never wait for a lock, they skip locked rows and come back. A commit that waits holds nothing that
comes later in the order. Two transactions that follow this cannot deadlock, and `tests/store/test_lock_order.py` forces
every pair of verbs to meet.

**Lock first, read later.** A statement that waited for a lock sees the newest version of the locked row, but all other
rows as they were when the statement began. So the first flush locks and verifies, and a later statement reads signals,
waits and early events. Reading them in the same statement would miss rows committed together with that version.

**Time is read once.** The lock statement reads the database's clock; the decision and all its rows use that moment.
An instance's revisions never go back in time, whichever processes wrote them: where the clock does, the commit is dated
after the one it follows.

**Unique keys decide who was first.** A visit happens once because its receipt exists once. A repeated start finds its
idempotency key, a repeated signal its id. When the answer to a COMMIT is lost, the receipt tells whether it took
effect; it is looked up, never assumed.

**Months.** `steps` and `events` are partitioned by month, and a statement on a partitioned table locks every partition
it might touch. The rows of nearly every batch are of one month, so hot statements have a variant that names it.

**One plan per statement.** Hot statements are prepared once and used with generic plans, on tables that are empty one
minute and huge the next. Their form leaves the planner one choice: keys come from the arrays and are compared so that
only the primary key's index can serve them. docs/store.md shows how to write one.

**Plain decisions are one row.** Most commits are steps that end and open the next one. Such a decision would be a row
in six statements; `fast_rows.py` makes it one row of one statement that writes all tables with the same guards. The
turn and the strides of a rollback have the same (`fast_rollbacks.py`). Anything unusual takes the statements per table.

**Decisions fold.** Several decisions of one instance in a batch become one update of its row. Work that is dispatched
and released again leaves no trace; a release followed by a dispatch keeps the row under its next fence, which is a
hand-off: an update of one row that no index sees.

Read on: `locks.py` (the first flush), `batch.py` (decisions to rows), `needs.py` and `history.py` (reads in the middle
of a commit), `fast_rows.py`, `fast_rollbacks.py`, `calls.py` (functions inside the transaction).
"""
