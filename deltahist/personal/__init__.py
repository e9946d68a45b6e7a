"""Budgets of persons: each pays for the queries that their own records are used in. Private."""
