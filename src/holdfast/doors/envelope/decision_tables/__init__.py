"""Decision tables: rows of conditions over the fields of a document, each with an outcome that a `rule` step answers.

`coverage` finds what no row decides and what two rows decide differently, before a table is published. `deciding` reads
a table for one document.
"""
