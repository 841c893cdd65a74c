"""What a person writes, as plain values: nothing here knows the kernel."""

from holdfast.definitions.flow import Flow
from holdfast.definitions.model import Compensation, Definition, Function, Human, Item, Step
from holdfast.definitions.path import Branch
from holdfast.definitions.problems import Problem

__all__ = ["Branch", "Compensation", "Definition", "Flow", "Function", "Human", "Item", "Problem", "Step"]
