"""What the correctness stage says of models that draw random numbers, keep state, train, or have no float64 form."""

import itertools
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import nn

from collector.correctness.checking import check
from collector.correctness.reference import Room
from collector.correctness.state import changed_inputs
from collector.measure.program import Subject, seed_everything
from collector.process.outcome import Outcome
from collector.templates import resolve_config
from collector.vocabulary import Cell, Config, Measurement, Phase, Status
from collector.zoo.spec import Built

EAGER = Config(backend="eager")


def checked(model, phase=Phase.INFERENCE, dtype="float32", config=EAGER, calls_before=0, inputs=None, room=Room()):  # noqa: B008 - it is frozen
    subject = subject_of(model, phase, dtype, config, inputs)
    compiled = subject.compiled(resolve_config(config, "cpu"))
    for _ in range(calls_before):
        subject.eager()
        compiled()
    return outcome_of(subject, compiled, room=room)


def subject_of(
    model, phase=Phase.INFERENCE, dtype="float32", config=EAGER, inputs=None, loss=None, targets=None, device="cpu"
):
    """The model as it is built for a cell, seeded; its loss is the mean square of what it returns."""
    seed_everything()
    x = torch.randn(64, 32) if inputs is None else inputs
    loss = loss or (lambda out, _: out.float().square().mean())
    return Subject(Cell("tests", "tiny", phase, dtype, device, 8, config), Built(model, (x,), {}, loss, targets))


def check_of(subject, compiled=None, room=Room(), **more):  # noqa: B008 - it is frozen
    torch._dynamo.reset()
    effective = resolve_config(subject._cell.config, subject._cell.device)
    outcome = Outcome(Measurement(subject._cell, Status.PASS, "", 0.0))
    check(outcome, subject, compiled or subject.compiled(effective), effective, None, room, **more)
    return outcome


def outcome_of(*words, **more):
    return check_of(*words, **more).measurement


class Does(nn.Module):
    """Has parts, and calls a function with itself and its input, and another one where it is compiled."""

    def __init__(self, eager, compiled=None, **parts):
        super().__init__()
        self.forms = eager, compiled or eager
        for name, part in parts.items():
            if isinstance(part, nn.Module | nn.Parameter):
                setattr(self, name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, x):
        eager, compiled = self.forms
        return compiled(self, x) if torch.compiler.is_compiling() else eager(self, x)


def layer(factor=1.0, errors=None):
    """A layer that raises errors in some dtypes and, compiled, is off by a factor."""

    def multiply(model, x):
        if not torch.is_autocast_enabled("cpu") and (error := (errors or {}).get(model.linear.weight.dtype)):
            raise error
        return model.linear(x)

    return Does(multiply, lambda model, x: multiply(model, x) * factor, linear=nn.Linear(32, 16))


def spoiling(subject, at):
    """A compiled program that changes a weight in one of its calls and never again."""
    calls = itertools.count(1)

    def call():
        made = subject.eager()
        if next(calls) == at:
            with torch.no_grad():
                subject.model.linear.weight[3, 5] += 1e-3
        return made

    return call


def caches():
    """Adds each call's input to a cache and returns it: what it returns depends on how often it was called."""
    return Does(lambda model, x: model.cache.add_(x) * 2, cache=torch.zeros(64, 32))


def drops(factor=1.0, probability=0.5):
    def drop(_, x):
        return nn.functional.dropout(x, probability, training=True)

    return Does(drop, lambda _, x: drop(_, x) * factor)


def test_statistics_that_only_eager_moves_fail_after_many_calls_too():
    def forget(model, x):
        return nn.functional.batch_norm(x, None, None, model.norm.weight, model.norm.bias, training=True)

    for compiled, status in ((forget, Status.FAIL_ACCURACY), (None, Status.PASS)):
        model = Does(lambda model, x: model.norm(x), compiled, norm=nn.BatchNorm1d(32))
        found = checked(model, Phase.TRAINING, calls_before=50)
        assert found.status is status
        assert status is Status.PASS or "state['norm.running_mean']" in found.failure.message


@pytest.mark.parametrize("keeps_memory", [True, False])
def test_a_program_that_keeps_memory_is_let_go_before_the_reference(keeps_memory):
    subject, events = subject_of(layer()), []

    def called():
        events.append("call")
        return subject.eager()

    @contextmanager
    def hold(*_):
        events.append("reference")
        yield

    let_go = (lambda: events.append("let go")) if keeps_memory else None
    outcome = check_of(subject, called, Room(hold), let_go=let_go)
    assert outcome.measurement.status is Status.PASS
    # What three calls in a row, and one with other inputs, make takes memory, too, beside a reference that takes most.
    further = ["call"] * 4
    assert events == ["call", *([*further, "let go", "reference"] if keeps_memory else ["reference", *further])]


def keeping(subject, number):
    """A compiled program that keeps an input of its first call, as a recorded graph does that nobody copies it to."""
    first = []

    def call():
        own = subject.inputs
        first.append(own.args[number])
        subject.place(replace(own, args=(*own.args[:number], first[0], *own.args[number + 1 :])))
        try:
            return subject.eager()
        finally:
            subject.place(own)

    return call


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize(("number", "status"), [(0, Status.FAIL_ACCURACY), (1, Status.FAIL_ACCURACY), (2, Status.PASS)])
def test_a_program_that_keeps_an_input_of_an_earlier_call_fails(phase, number, status):
    class Embeds(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(50, 16)

        def forward(self, tokens, x, offset):
            return self.table(tokens) * x + offset

    given = torch.randint(50, (8, 12)), torch.randn(8, 12, 16), torch.zeros(16)
    built = Built(Embeds(), given, {}, lambda out, _: out.square().mean(), None)
    subject = Subject(Cell("tests", "tiny", phase, "float32", "cpu", 8, EAGER), built)
    own = subject.inputs
    found = outcome_of(subject, keeping(subject, number))
    assert found.status is status, "all zeros are the same in every call"
    assert status is Status.PASS or "other inputs move it by" in found.failure.message
    assert subject.inputs == own
    assert outcome_of(subject, subject.eager).status is Status.PASS


def test_rounding_in_another_order_is_no_move():
    subject = subject_of(Does(lambda _, x: x.sum(-1)))
    assert not torch.equal(subject.eager(), subject.inputs.args[0].roll(1, 1).sum(-1))
    assert outcome_of(subject, keeping(subject, 0)).status is Status.PASS


def test_a_program_that_does_not_run_with_other_inputs_passes():
    subject = subject_of(layer())
    first = subject.inputs.args[0]

    def call():
        if subject.inputs.args[0] is not first:
            raise RuntimeError("one input alone")
        return subject.eager()

    found = outcome_of(subject, call)
    assert (found.status, found.details["no_other_inputs"]) == (Status.PASS, "RuntimeError: one input alone")


def test_only_what_neither_counts_nor_points_is_changed():
    tokens, wide = torch.tensor([[5, 2, 9], [1, 1, 4]]), torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    asking, shared = torch.randn(3, 1, requires_grad=True), torch.randn(3)
    kept = {
        "offsets": torch.tensor([[0, 2, 5], [0, 1, 7]]),
        "lengths": torch.tensor([3, 1, 2]),
        "mask": torch.tensor([[True, False]]),
        "part": torch.randn(4, 4)[1:],
        "repeated": torch.randn(4, 1).expand(4, 4),
        "constant": torch.ones(3, 3),
        "one": torch.randn(1, 1),
        "twice": [shared, shared],
        "sparse": torch.eye(3).to_sparse(),
    }
    first = (tokens, kept, 5), {"wide": wide, "asking": asking}
    moved = list(changed_inputs(first))
    assert [one[0][0] is tokens for one in moved] == [False, True, True]
    assert moved[0][0][0].tolist() == [[9, 5, 2], [4, 1, 1]]
    assert all(one[0][1]["part"] is kept["part"] and one[0][2] == 5 for one in moved)
    assert moved[1][1]["wide"].stride() == wide.stride()
    assert torch.equal(moved[1][1]["wide"], wide.roll(1, 3))
    assert moved[2][1]["asking"].requires_grad
    assert moved[2][1]["asking"].flatten().tolist() == asking.flatten().roll(1).tolist()


def test_a_model_that_remembers_is_compared_from_one_state():
    found = checked(caches(), calls_before=3)
    assert (found.status, found.failure, found.details["tensors_compared"]) == (Status.PASS, None, 2)
    x = torch.randn(64, 32)
    # A library has copies of the buffers, so that they are not compared.
    for backend, status in (("aot_inductor", Status.PASS), ("aot_eager", Status.FAIL_ACCURACY)):
        subject = subject_of(caches(), config=Config(backend=backend), inputs=x)
        assert outcome_of(subject, lambda: x * 2).status is status


def test_random_outputs_are_compared_with_eager_unless_below_its_rounding():
    for factor, status in ((1.0, Status.PASS), (1.5, Status.FAIL_ACCURACY)):
        found = checked(drops(factor))
        assert found.status is status
        assert (found.details["checked_by"], found.details["random_outputs"]) == ("cosine", True)
    # They turn a last bit now and then: far less than bfloat16 rounds anyway.
    found = checked(Does(lambda _, x: x * 1.003 + torch.randn_like(x) * 1e-5), dtype="bfloat16")
    assert (found.status, found.failure) == (Status.PASS, None)
    assert (found.details["checked_by"], found.details["random_outputs"]) == ("float64", True)


def test_inductor_is_compared_while_it_draws_as_eager_does(monkeypatch, own_cache):
    asked, released, compiled = [], [], Subject.compiled
    monkeypatch.setattr(Subject, "compiled", lambda self, of: asked.append(dict(of.options)) or compiled(self, of))

    @contextmanager
    def release():
        released.append("released")
        yield
        released.append("taken")

    found = checked(drops(), config=Config(template="triton"), calls_before=1, room=Room(release=release))
    assert (found.status, found.failure) == (Status.PASS, None)
    assert found.metrics["cosine"] > 0.999
    assert asked == [{}, {"fallback_random": True}]
    assert released[:2] == ["released", "taken"], "the second program compiles without the device"
    assert len(released) % 2 == 0


def test_an_eager_run_without_numbers_fails():
    found = checked(Does(lambda _, x: x / (x - x)), inputs=torch.zeros(4, 4))
    assert found.status is Status.EAGER_FAIL
    assert found.failure.message == "output: 16 of 16 values are NaN in eager"
    assert "without any compiler" in found.failure.hint


def factored(function, factor):
    """A model that calls a function with a factor where it is compiled, and with 1 in eager."""
    return Does(function, lambda model, x: function(model, x, factor), linear=nn.Linear(32, 16))


def scoring(model, x, factor=1.0):
    """Returns a right loss, and scores that are off by the factor."""
    scores = model.linear(x)
    return {"loss": scores.float().square().mean(), "scores": scores * factor}


def loss_of(out, _):
    return out["loss"] if isinstance(out, dict) else out.sum()


def stepped(model, inputs=None, dtype="float32"):
    subject = subject_of(model, Phase.TRAINING, dtype, inputs=inputs, loss=loss_of)
    found = outcome_of(subject)
    assert subject.inputs.args[0].grad is None
    return found


@pytest.mark.parametrize(
    ("factor", "status", "dtype"),
    [(1.0, Status.PASS, "bfloat16"), (100.0, Status.FAIL_ACCURACY, "amp"), (1.1, Status.FAIL_ACCURACY, "float32")],
)
def test_scores_beside_a_right_loss_are_compared(factor, status, dtype):
    found = stepped(factored(scoring, factor), dtype=dtype)
    assert found.status is status
    assert status is Status.PASS or "output[1]" in found.failure.message


class Gradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


def squaring(model, x, factor=1.0):
    """Multiplies the gradient of its input by the factor."""
    return model.linear(Gradient.apply(x, factor)).square()


@pytest.mark.parametrize(
    ("factor", "status", "dtype"), [(1.0, Status.PASS, "bfloat16"), (3.0, Status.FAIL_ACCURACY, "float32")]
)
def test_the_gradient_of_an_input_that_asks_for_one_is_compared(factor, status, dtype):
    found = stepped(factored(squaring, factor), torch.randn(64, 32, requires_grad=True), dtype)
    assert found.status is status
    assert status is Status.PASS or found.failure.message.startswith("grad['input 0']")
    assert found.details["checked_by"] == "float64" or status is not Status.PASS
    assert stepped(factored(squaring, factor), dtype=dtype).status is Status.PASS, "an input that asks for no gradient"
