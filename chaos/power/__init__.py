"""Power cuts on real files: see DESIGN.md."""
