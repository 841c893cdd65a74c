"""The cases: each module measures one subject and answers with the rows of its bars."""
