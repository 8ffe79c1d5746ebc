"""Reports as one HTML file that needs no server and no network."""

from castgym.evaluation.html.page import HtmlReport, write_html

__all__ = ["HtmlReport", "write_html"]
