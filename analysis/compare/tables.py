"""The summary of one side, where `jobs.pool` expects it."""

from analysis.compare.comparing import summarise as summarise
