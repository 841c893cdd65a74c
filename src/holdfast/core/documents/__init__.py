"""Documents: what a verb on a document, or a change of it, does to its instance.

The graph of a document has *regions*: a state, or a slot that an organisation has filled with steps. A region has an
edit window, and verbs that people may call while any token is in it. Three modules read them:

    verbs     a verb takes the edge of the state that the token rests at; anywhere else in its region it interrupts
    entity    a change of the document is followed; approvers are asked again, or the document is amended
    stance    what may be done to the document now, for the wall in front of it

An *interrupt* ends all tokens with their tasks, timers and sub-flows, and the root token goes on at the target, as
after a timeout. Nothing else leads from one part of a document's graph to another: `gates` refuses whatever would pass
an approval or enter a gate from elsewhere (events, re-runs, starts), `crossing` does so for migrations.
"""
