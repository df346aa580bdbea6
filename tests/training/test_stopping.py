"""Signals that ask a training to stop."""

import os
import signal
import subprocess

import pytest

from deeplda.training.stopping import asked_to_stop, blocked_in_children, interrupted_by_signals


def send(number):
    os.kill(os.getpid(), number)


@pytest.mark.usefixtures("default_hangup")
def test_only_a_further_ctrl_c_stops_immediately():
    """A closed terminal sends SIGHUP twice, and a service manager sends SIGTERM to all processes of a job."""
    said = []
    with asked_to_stop(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, say=said.append) as stop:
        assert not stop()
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM, signal.SIGTERM):
            send(number)
            assert stop()
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
    assert len(said) == 1


def test_the_previous_handlers_are_restored():
    numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    before = [signal.getsignal(number) for number in numbers]
    with asked_to_stop(*numbers):
        assert all(signal.getsignal(number) not in before for number in numbers[:2])
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.usefixtures("default_hangup")
def test_outside_a_training_signals_stop_like_ctrl_c():
    for number in (signal.SIGTERM, signal.SIGHUP):
        with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
            send(number)
        assert signal.getsignal(number) == signal.SIG_DFL


@pytest.mark.usefixtures("default_hangup")
def test_nohup_is_respected():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with asked_to_stop(signal.SIGTERM, signal.SIGHUP) as stop:
        send(signal.SIGHUP)
        assert not stop()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        send(signal.SIGTERM)
        assert stop()


def test_a_message_that_cannot_be_printed_is_not_an_error():
    def fail(_text):
        raise OSError(5, "Input/output error")

    with asked_to_stop(signal.SIGTERM, say=fail) as stop:
        send(signal.SIGTERM)
        assert stop()


def test_a_signal_blocked_in_children_reaches_the_parent_after_the_block():
    with asked_to_stop(signal.SIGINT) as stop:
        with blocked_in_children(signal.SIGINT):
            done = subprocess.run(["sh", "-c", "kill -INT $$; echo alive"], capture_output=True, text=True, check=False)
            send(signal.SIGINT)
        assert stop()
    assert (done.returncode, done.stdout) == (0, "alive\n")
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
