"""The commands of machines: triggers, consumers and their facts, reports."""
