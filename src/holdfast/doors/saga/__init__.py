"""The saga door: flows written in Python, as plain values. Nothing here knows the kernel."""

from holdfast.doors.saga.builder import Branch
from holdfast.doors.saga.flow import Flow
from holdfast.doors.saga.model import Compensation, Definition, Function, Human, Item, Step
from holdfast.doors.saga.problems import Problem
from holdfast.doors.saga.values import Retry, Undo

__all__ = [
    "Branch",
    "Compensation",
    "Definition",
    "Flow",
    "Function",
    "Human",
    "Item",
    "Problem",
    "Retry",
    "Step",
    "Undo",
]
