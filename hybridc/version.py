"""The version of hybridc, written into every emitted package."""

VERSION = "0.1.0"
