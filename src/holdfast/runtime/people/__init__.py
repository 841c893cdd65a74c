"""People: advancing workflows, inboxes, forms, and what each person may see."""
