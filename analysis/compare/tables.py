"""The summary of one side, where `jobs.pool` expects it."""

from analysis.compare.compare_sides import summarise as summarise
