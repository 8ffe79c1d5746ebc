"""Cast-R1's five diagnostic tools: pure functions of the visible window, each with a typed report and a summary."""

from castgym.tools.diagnostics.basic_statistics import BasicStatistics, extract_basic_statistics
from castgym.tools.diagnostics.dynamics import WithinChannelDynamics, extract_within_channel_dynamics
from castgym.tools.diagnostics.events import EventSummary, extract_event_summary
from castgym.tools.diagnostics.permutation_entropy import permutation_entropy
from castgym.tools.diagnostics.quality import DataQuality, extract_data_quality
from castgym.tools.diagnostics.residuals import ForecastResiduals, extract_forecast_residuals
from castgym.tools.diagnostics.summary import SUMMARY_BUDGET, DiagnosticReport

__all__ = [
    "SUMMARY_BUDGET",
    "BasicStatistics",
    "DataQuality",
    "DiagnosticReport",
    "EventSummary",
    "ForecastResiduals",
    "WithinChannelDynamics",
    "extract_basic_statistics",
    "extract_data_quality",
    "extract_event_summary",
    "extract_forecast_residuals",
    "extract_within_channel_dynamics",
    "permutation_entropy",
]
