"""Documents: verbs on a document, changes of it, and their effect on its instance.

The graph of a document has *regions*: a state, or a slot that an organisation has filled with steps. A region has an
edit window, and verbs that people may call while any token is in it. Three modules read them:

    verbs     a verb takes the edge of the state that the token rests at; anywhere else in its region it interrupts
    entity    a change of the document is followed; approvers are asked again, or the document is amended
    stance    the edit window and the verbs of this moment, for the wall in front of the document

An *interrupt* ends all tokens with their tasks, timers and sub-flows, and the root token continues at the target, as
after a timeout. Nothing else leads from one part of a document's graph to another: `gates` refuses events, re-runs
and starts that would pass an approval or enter a gate from elsewhere, `crossing` refuses such migrations.
"""
