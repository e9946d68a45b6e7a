"""Databases: what they are asked, in words that all of them understand alike. Private."""
