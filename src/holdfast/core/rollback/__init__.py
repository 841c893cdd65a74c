"""Rollback: which steps are undone, in which order, and how each compensation runs.

A saga has no transaction that spans its steps: each has committed, and its effect on the world is visible. So a failure
cannot be rolled back in the sense of a database. It is *compensated*: for each step that took effect, another handler
runs that undoes it. This is the theory behind it.

**When it begins.** A step fails for good and its flow is not in DLQ mode; a caller cancels; or the instance runs out of
time. The instance becomes `rolling_back`, with a target: `failed` or `cancelled`. From here nothing goes forward.

**Begin.** Tokens that wait end at once, their steps `skipped`. A handler in flight cannot be taken back by
pretending that it did not run: it is awaited, and its result is recorded. If it succeeds after all, its step counts as
evidence and is compensated like any other. A sub-flow in flight is cancelled and awaited in the same way. A cancel asks
running handlers to stop; a failure lets them finish. The wait is bounded, because a lease ends.

**Plan.** When no token is left, the decision needs the history of the instance. This is the only moment at which the
engine reads the past, and it reads it once. The plan is made from the step rows, not from the graph: it says what ran,
in loops, branches and versions of the flow that may be gone by now. `order.py` selects the steps since the nearest save
point (a cancel ignores save points) and sorts them. Then every compensation gets its row at once, pending, with its
place in the order, before the first one runs. A crash in the middle loses nothing: the plan is in the database.

**The order is strictly backwards.** The failed step comes first, since it may have done half of its work and its own
compensation is the one that knows. Then the deepest step of each branch, in the order the branches were written, then
the split, then the steps before it. One compensation runs at a time, also for steps that ran side by side: a later
step may rest on an earlier one, and an order that anyone can predict is worth more than speed on the way back.

**Run.** A compensation is a step like any other: a row of kind `compensate` on the path and hop of the step it undoes,
with a receipt, an idempotency key of its own, attempts, a lease, a queue. It gets both sides of that step:
`{"input": ..., "output": ...}`. Its success moves the undone step to `rolled_back` and dispatches the next one, often
handed off to the same worker. Steps without a compensation become `rolled_back` with the plan: there is nothing to run.

**When a compensation fails.** It has its own retries. Out of attempts, it leaves a dead letter for an operator, and the
rollback continues: one obstacle must not keep the other effects in the world. The instance then ends as `failed`. A
later requeue of that letter runs the compensation again, while the instance stays as it is.

**Each at most once.** A receipt per visit and kind makes a second compensation of the same step impossible, and the
fence of its path guards the result. That fence is above all that the path has seen, or a stop meant for the handler of
a later step could hit the compensation.

**The snapshot** holds only the number of compensations left. With the plan repeated in every snapshot, a rollback
of a thousand steps would write a thousand plans. The process that made the plan keeps it in memory (`pending.py`);
another process reads the rows, under the instance's lock.

**End.** The last compensation sets the instance to its target. An abort in between abandons the rollback: compensations
that have not run become `skipped`. Replay folds the same rows to the same end.

Read on: `rollback.py` (begin, plan, run), `order.py`, `pending.py`. The failure that leads here is in
`core/kernel/failure.py`, the fast path of the same rules in `core/fast`.
"""
