"""Answers that come together are followed by their next calls a few at a time."""

import asyncio

from processor.delivery.turns import AT_ONCE, Turns


async def _most_behind(answers: int, turns: Turns | None) -> int:
    """The most answers that were looked at before the calls that follow them went out."""
    behind = most = 0
    calls: list[asyncio.Task[None]] = []

    async def call() -> None:
        nonlocal behind
        behind -= 1

    async def answer(heard: asyncio.Event) -> None:
        nonlocal behind, most
        await heard.wait()
        if turns is not None:
            await turns.take()
        behind += 1
        most = max(most, behind)
        calls.append(asyncio.create_task(call()))

    heard = asyncio.Event()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = [group.create_task(answer(heard)) for _ in range(answers)]
        await asyncio.sleep(0)
        heard.set()
    await asyncio.gather(*calls)
    assert len(calls) == len(waiting)
    return most


async def test_the_calls_that_follow_go_out_between() -> None:
    turns = Turns(asyncio.get_running_loop())
    assert await _most_behind(128, turns) <= AT_ONCE
    # Each turn has ended by itself.
    assert await _most_behind(128, turns) <= AT_ONCE


async def test_the_loop_alone_would_look_at_all_of_them_first() -> None:
    assert await _most_behind(128, None) == 128


async def test_one_that_is_cut_off_while_it_waits_takes_no_turn() -> None:
    loop = asyncio.get_running_loop()
    turns = Turns(loop)
    waiting = [asyncio.create_task(turns.take()) for _ in range(3 * AT_ONCE)]
    await asyncio.sleep(0)
    for task in waiting[AT_ONCE:]:
        task.cancel()
    await asyncio.wait(waiting)
    async with asyncio.timeout(10):
        for _ in range(2 * AT_ONCE):
            await turns.take()
