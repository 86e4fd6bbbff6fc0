"""The page of the job that measured."""

from __future__ import annotations

import pytest

from jobs.ci import job_url

GITHUB = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "pytorch/pytorch", "GITHUB_RUN_ID": "168"}


@pytest.mark.parametrize(
    ("environ", "page"),
    [
        ({"GITHUB_RUN_ID": "1"}, ""),
        ({**GITHUB, "GITHUB_RUN_ATTEMPT": "2"}, "https://github.com/pytorch/pytorch/actions/runs/168/attempts/2"),
        ({"CI_JOB_URL": "https://gitlab.example/-/jobs/7"}, "https://gitlab.example/-/jobs/7"),
        ({"BUILD_URL": "https://jenkins.example/job/7/"}, "https://jenkins.example/job/7/"),
    ],
)
def test_services_tell_the_page_in_parts_or_whole(environ, page):
    assert job_url(environ) == page
