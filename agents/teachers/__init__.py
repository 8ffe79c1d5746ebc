"""Scripted teachers: stochastic experts whose episodes small policies learn from, without any model."""

from castgym.agents.teachers.decision import DecisionTeacher, official_teacher
from castgym.agents.teachers.forecast import ForecastTeacher

__all__ = ["DecisionTeacher", "ForecastTeacher", "official_teacher"]
