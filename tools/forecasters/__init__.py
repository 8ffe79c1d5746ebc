"""Forecasters behind one protocol, loaded lazily and cached by content."""
