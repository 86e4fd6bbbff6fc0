"""The page of the job that measured."""

from __future__ import annotations

from jobs.github.ci import job_url

GITHUB = {
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "pytorch/pytorch",
    "GITHUB_RUN_ID": "16885961204",
}


def test_outside_a_service_there_is_no_page():
    assert job_url({}) == ""
    assert job_url({"GITHUB_RUN_ID": "1"}) == ""


def test_github_actions_tells_it_in_parts():
    assert job_url(GITHUB) == "https://github.com/pytorch/pytorch/actions/runs/16885961204"
    assert job_url({**GITHUB, "GITHUB_RUN_ATTEMPT": "2"}).endswith("/actions/runs/16885961204/attempts/2")


def test_other_services_tell_it_whole():
    assert job_url({"CI_JOB_URL": "https://gitlab.example/-/jobs/7"}) == "https://gitlab.example/-/jobs/7"
    assert job_url({"BUILD_URL": "https://jenkins.example/job/7/"}) == "https://jenkins.example/job/7/"
