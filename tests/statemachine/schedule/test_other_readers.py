"""500 expressions before three other readers: croniter, cronsim, and cron-parser (of npm).

Each is asked for its next 20 instants in UTC, and in Berlin around both changes of offset. A
difference needs an entry in `KNOWN` with its reason, and an entry that names nothing fails too.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from croniter import CroniterBadDateError, CroniterError, croniter
from cronsim import CronSim, CronSimError

from raftsched.proto.v1 import schedule_pb2
from raftsched.statemachine.schedule.cron import Refusal, read_cron
from raftsched.statemachine.schedule.zoned_cron import ZonedCron
from raftsched.statemachine.schedule.zones import find_zone

SEED = 20261119
EXPRESSIONS = 500
INSTANTS = 20
YEARS = 8  # What comes later is not compared: readers give up at different distances.
CRON_PARSER = "5.10.5"
HERE = Path(__file__).parent


class Window(NamedTuple):
    zone: str
    begin_s: int


def window(zone: str, *begin: int) -> Window:
    year, month, day, hour = begin
    return Window(zone, int(datetime(year, month, day, hour, tzinfo=UTC).timestamp()))


WINDOWS = (
    window("UTC", 2026, 2, 10, 0),
    window("Europe/Berlin", 2026, 3, 28, 20),  # Forward at 01:00 UTC on the 29th.
    window("Europe/Berlin", 2026, 10, 24, 20),  # Back at 01:00 UTC on the 25th.
)
# What people write, and where readers are known to part.
BY_HAND = """
* * * * *|*/5 * * * *|0 9 * * mon-fri|30 2 * * *|0 0 1 * *|0 */2 * * *|0 */5 * * *|*/45 * * * *
0 9 */2 * mon|0 9 1-31 * mon|0 9 15 * 0-6
0 9 15 * */2|0 9 *,15 * mon|0 9 ? * mon|0 9 */100,1-7 * mon
0 0 31W * *|0 0 29W * *|0 0 30W 2,4 *|0 0 15W * *|0 0 LW * *|0 0 15W * sat|0 0 L * *|0 0 L-3 * *
0 0 L * fri|1-1 * * * *|5-5 9 * * *|5-5/15 9 * * *|0 0 1-1 1-1 *|0 0 * * fri-fri|0 0 * * sun-0
5-1 * * * *|0 22-2 * * *|0 0 25-5 * *|0 0 * nov-feb *|0 0 * * fri-mon|0 0 * * 5-7|0 0 * * 7
0 0 * * 0-7|0 0 * * 6/1|59/15 * * * *|* 9 * * *|0 0 13 * fri|0 0 13 * fri#2|0 0 * * fri#2
0 0 * * mon#5|0 0 * * 5L|0 6 * * mon,wed#2|0 0 29 2 *|0 0 30 2 *|0 9-17/2 * 3,10 *|0,30 0-4 * * *
15 30 2 * * *|*/10 * * * * *|0 0 2 * * *|30 0-23 * * *|* 2 * * *|0 0 * * 7-0|0 24 * * *|60 * * * *
0 2,3 * * *|30 1-3 * * *|0 0-23/3 * * *|0 1/2 * * *|45 */3 * * *|*/20 2 * * *|10 2 * * sun
"""


def item(random: Random, low: int, high: int, words: Sequence[str] = ()) -> str:
    """One field, as often plain as people write it."""
    a, b = random.randint(low, high), random.randint(low, high)
    step = random.randint(1, 6)
    kinds: list[tuple[int, str]] = [
        (32, "*"),
        (18, str(a)),
        (10, ",".join(map(str, random.sample(range(low, high + 1), random.randint(2, 3))))),
        (10, f"{min(a, b)}-{max(a, b)}"),
        (8, f"{min(a, b)}-{max(a, b)}/{step}"),
        (8, f"*/{random.randint(2, high)}"),
        (3, f"{a}/{step}"),
        (2, f"{a}-{b}"),
        (9, random.choice([*words, "*"])),
    ]
    return random.choices([text for _, text in kinds], [often for often, _ in kinds])[0]


def generated(seed: int) -> Iterator[str]:
    random = Random(seed)
    while True:
        fields = [
            item(random, 0, 59),
            item(random, 0, 23),
            item(random, 1, 31, ("L", "LW", "15W", "31W", "L-3", "?", "1,L")),
            item(random, 1, 12, ("jan", "feb-oct", "mar,jul", "nov-feb")),
            item(random, 0, 7, ("mon-fri", "sat,sun", "fri", "fri#2", "mon#5", "5L", "?")),
        ]
        seconds = [item(random, 0, 59)] if random.random() < 0.15 else []
        yield " ".join(seconds + fields)


@cache
def expressions() -> tuple[str, ...]:
    found = dict.fromkeys(BY_HAND.replace("\n", "|").strip("|").split("|"))
    for text in generated(SEED):
        if len(found) == EXPRESSIONS:
            break
        found[text] = None
    return tuple(found)


# What a reader makes of an expression: its next instants in seconds, or None if it refuses it.
Times = tuple[int, ...] | None
Answers = dict[tuple[str, Window], Times]


def taken(times: Iterator[int], begin_s: int) -> tuple[int, ...]:
    found: list[int] = []
    for at in times:
        if len(found) == INSTANTS or at > end_of(begin_s):
            break
        found.append(at)
    return tuple(found)


def end_of(begin_s: int) -> int:
    return begin_s + YEARS * 366 * 86_400


def by_us(expression: str, zone: str, begin_s: int) -> Times:
    read = read_cron(expression, "default/job")
    if isinstance(read, Refusal):
        return None
    place = find_zone(zone)
    assert place is not None
    unset = schedule_pb2.GAP_RULE_UNSPECIFIED, schedule_pb2.FOLD_RULE_UNSPECIFIED
    cron = ZonedCron(read.fields, place, *unset)

    def walk() -> Iterator[int]:
        at = cron.find_next(begin_s * 1000)
        while at is not None:
            yield at // 1000
            at = cron.find_next(at)

    return taken(walk(), begin_s)


def by_croniter(expression: str, zone: str, begin_s: int) -> Times:
    begin = datetime.fromtimestamp(begin_s, ZoneInfo(zone))
    try:
        cron = croniter(
            expression,
            begin,
            second_at_beginning=True,
            implement_cron_bug=True,  # Its name for the rule of the star in a day field.
            max_years_between_matches=YEARS + 1,
        )
    except CroniterError:
        return None

    def walk() -> Iterator[int]:
        try:
            while True:
                yield int(cron.get_next(float))
        except CroniterBadDateError:
            return

    return taken(walk(), begin_s)


def by_cronsim(expression: str, zone: str, begin_s: int) -> Times:
    begin = datetime.fromtimestamp(begin_s, UTC if zone == "UTC" else ZoneInfo(zone))
    try:
        return taken((int(at.timestamp()) for at in CronSim(expression, begin)), begin_s)
    except CronSimError:
        return None


WALK = """
const {CronExpressionParser} = require(process.argv[1]);
const asked = JSON.parse(require("fs").readFileSync(0, "utf8"));
const answers = asked.map(([text, tz, begin, end, count]) => {
  let cron;
  try {
    cron = CronExpressionParser.parse(text, {tz, currentDate: new Date(begin * 1000)});
  } catch { return null; }
  const found = [];
  while (found.length < count) {
    let at;
    try { at = cron.next().getTime() / 1000; } catch { break; }
    if (at > end) break;
    found.push(at);
  }
  return found;
});
console.log(JSON.stringify(answers));
"""


def by_cron_parser() -> Answers:
    """Ask it in a process of its own; it is fetched into the virtual environment once."""
    home = Path(sys.prefix) / "cron-parser" / CRON_PARSER
    module = home / "node_modules" / "cron-parser"
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("no npm here, so cron-parser is not asked")
    if not module.exists():
        home.mkdir(parents=True, exist_ok=True)
        wanted = ["npm", "install", "--silent", "--no-save", "--no-package-lock"]
        wanted += ["--ignore-scripts", "--prefix", str(home), f"cron-parser@{CRON_PARSER}"]
        try:
            subprocess.run(wanted, check=True, capture_output=True, timeout=60)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            pytest.skip(
                f"npm could not fetch cron-parser {CRON_PARSER}, so it is not asked: {error}"
            )
    asked = [(text, at) for text in expressions() for at in WINDOWS]
    sent = [[text, *at, end_of(at.begin_s), INSTANTS] for text, at in asked]
    answer = subprocess.run(
        ["node", "-e", WALK, str(module)],
        input=json.dumps(sent),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = json.loads(answer.stdout)
    return {key: None if got is None else tuple(got) for key, got in zip(asked, found, strict=True)}


def by(reader: Callable[[str, str, int], Times]) -> Answers:
    return {(text, at): reader(text, *at) for text in expressions() for at in WINDOWS}


class Odd(NamedTuple):
    """Where a reader is not of our mind: an expression by its fields, and what only one names."""

    minute: str
    hour: str
    day: str
    month: str
    weekday: str
    seconds: str  # Empty with five fields.
    refused_by: str  # "us", "them" or empty.
    only_ours: tuple[int, ...]
    only_theirs: tuple[int, ...]

    @property
    def by_day(self) -> bool:
        """Whether both day fields say something."""
        return self.day[0] not in "*?" and self.weekday[0] not in "*?"

    @property
    def edge(self) -> str:
        """ "gap" or "fold" where all of it lies within two hours of that change, else empty."""
        odd = self.only_ours + self.only_theirs
        for name, (_, begin) in zip(("gap", "fold"), WINDOWS[1:], strict=True):
            change = begin + 5 * 3600
            if odd and all(abs(at - change) < 7200 for at in odd):
                return name
        return ""


def odd_of(text: str, at: Window, mine: Times, other: Times) -> Odd | None:
    if mine == other:
        return None
    fields = text.split()
    seconds = fields.pop(0) if len(fields) == 6 else ""
    minute, hour, day, month, weekday = fields
    about = minute, hour, day, month, weekday, seconds
    if mine is None or other is None:
        return Odd(*about, "us" if mine is None else "them", (), ())
    # Where one ends with its twentieth, the other may go on.
    ends = [times[-1] for times in (mine, other) if len(times) == INSTANTS]
    end = min(ends, default=end_of(at.begin_s))
    ours, theirs = ({at for at in times if at <= end} for times in (mine, other))
    return Odd(*about, "", tuple(sorted(ours - theirs)), tuple(sorted(theirs - ours)))


class Known(NamedTuple):
    """A difference that is known: whose, why, and which it is."""

    reader: str
    why: str
    fits: Callable[[Odd], bool]


CRONITER, CRONSIM, PARSER = "croniter", "cronsim", "cron-parser"
EQUAL = re.compile(r"(\w+)-(\w+)(/\d+)?")


NAMES = {
    name: str(at)
    for names in (
        "sun mon tue wed thu fri sat",
        ". jan feb mar apr may jun jul aug sep oct nov dec",
    )
    for at, name in enumerate(names.split())
}


def has_equal_range(odd: Odd, *, stepped: bool = False) -> bool:
    for part in ",".join(odd[:6]).split(","):
        said = EQUAL.fullmatch(part)
        same = said and ({said[1], said[2]} in ({"sun", "0"},) or said[1] == said[2])
        if same and said and (said[3] or not stepped):
            return True
    return False


def has_wrap(odd: Odd) -> bool:
    """Whether a range goes on from its field's end: 22-2, fri-mon."""
    for part in ",".join([*odd[:4], odd.seconds, odd.weekday.replace("-7", "-6")]).split(","):
        said = RANGE.match(part)
        if said and int(NAMES.get(said[1], said[1])) > int(NAMES.get(said[2], said[2])):
            return True
    return False


RANGE = re.compile(r"(\d+|[a-z]{3})-(\d+|[a-z]{3})")


def beyond_six(weekday: str) -> bool:
    """Whether a step in the day of week comes to 7, or begins there."""
    said = re.search(r"(\d)/(\d+)$", weekday)
    return said is not None and ((7 - int(said[1])) % int(said[2]) == 0 or said[1] == "7")


def fixed(odd: Odd) -> bool:
    """Whether the hour field names hours, other than all and every n-th."""
    return not odd.hour.startswith("*") and odd.hour != "0-23"


def refused(odd: Odd, *words: str) -> bool:
    text = " ".join([odd.seconds, *odd[:5]])
    return odd.refused_by == "them" and any(word in text for word in words)


KNOWN = (
    Known(
        CRONITER,
        "a range of one value is that value; it takes 5-5 for the whole field, 5-5/15 for */15",
        has_equal_range,
    ),
    Known(
        CRONITER,
        "31W runs only where there is a 31st, as in Quartz; it takes the month's last weekday",
        lambda odd: odd.day in ("29W", "30W", "31W") and odd.weekday in "*?",
    ),
    Known(
        CRONITER,
        "beside W or # the other day field counts as ever; it lets only one of the two count",
        lambda odd: odd.by_day and ("W" in odd.day or "#" in odd.weekday),
    ),
    Known(
        CRONITER,
        "it has no word for LW, L-3 and 5L, nor for a weekday beside wed#2",
        lambda odd: refused(odd, "LW", "L-3", "5L", "mon,wed#2"),
    ),
    Known(
        CRONITER,
        "a fixed time that comes twice runs once, as in Vixie cron; it runs twice",
        lambda odd: odd.edge == "fold" and fixed(odd) and not odd.only_ours,
    ),
    Known(
        CRONITER,
        "a missing time runs at the first instant behind the gap; it keeps the second",
        lambda odd: odd.edge == "gap" and odd.seconds.isdecimal() and odd.seconds != "0",
    ),
    Known(
        CRONITER,
        "7-0 is refused, since both are Sunday; it takes it for the week",
        lambda odd: odd.refused_by == "us" and odd.weekday == "7-0",
    ),
    Known(CRONSIM, "it reads no W, no L-3, no ?", lambda odd: refused(odd, "W", "L-3", "?")),
    Known(
        CRONSIM,
        "22-2 goes on at 0, as in Quartz; it refuses it, as Vixie cron does",
        lambda odd: odd.refused_by == "them" and has_wrap(odd),
    ),
    Known(
        CRONSIM,
        "5-5/15 is 5, as in Vixie cron; it goes on by the step",
        lambda odd: has_equal_range(odd, stepped=True),
    ),
    Known(
        CRONSIM,
        "a step in the day of week ends at 6, since Sunday is 0; it counts to 7",
        lambda odd: beyond_six(odd.weekday),
    ),
    Known(
        CRONSIM,
        "a day that no month has is refused where it is read; we say that it never fires",
        lambda odd: odd.refused_by == "them" and odd.day == "30" and odd.month == "2",
    ),
    Known(
        CRONSIM,
        "a rate in hours makes up for the hour that is left out; it rests longer",
        lambda odd: odd.edge == "gap" and odd.hour.startswith("*/") and not odd.only_theirs,
    ),
    Known(
        CRONSIM,
        "with fixed hours the gap and fold rules hold whatever the minute and the second are; it "
        "applies them to five fields without a star in the minute",
        lambda odd: (
            bool(odd.edge) and fixed(odd) and (odd.minute.startswith("*") or bool(odd.seconds))
        ),
    ),
    Known(
        CRONSIM,
        "all hours are real hours however they are written; it looks for a star",
        lambda odd: bool(odd.edge) and odd.hour == "0-23",
    ),
    Known(
        PARSER,
        "a star in a day field wants both, as in Vixie cron and cronsim; for it either is enough",
        lambda odd: (
            "*" in (odd.day[0], odd.weekday[0])
            and not {odd.day, odd.weekday} & {"*", "?"}
            and not odd.refused_by
            and (not odd.only_ours or odd.hour.startswith("*/"))
        ),
    ),
    Known(
        PARSER,
        "it reads no W, no L-3, nothing beside a star or #",
        lambda odd: refused(odd, "W", "L-3", "*,15", "*/100,1-7", "mon,wed#2"),
    ),
    Known(
        PARSER,
        "0 and 7 in one list are one Sunday; it refuses what stands twice",
        lambda odd: odd.refused_by == "them" and {"0", "7"} <= set(odd.weekday.split(",")),
    ),
    Known(
        PARSER,
        "22-2 goes on at 0, as in Quartz; it refuses it",
        lambda odd: odd.refused_by == "them" and has_wrap(odd),
    ),
    Known(
        PARSER,
        "a step in the day of week ends at 6, since Sunday is 0; it counts to 7",
        lambda odd: beyond_six(odd.weekday),
    ),
    Known(
        PARSER,
        "a day that no month has is refused where it is read; we say that it never fires",
        lambda odd: odd.refused_by == "them" and odd.day == "30" and odd.month == "2",
    ),
    Known(
        PARSER,
        "a missing time runs at the first instant behind the gap; it runs an hour later",
        lambda odd: odd.edge == "gap",
    ),
    Known(
        PARSER,
        "a rate in hours runs in both of two equal hours; it runs once",
        lambda odd: odd.edge == "fold" and odd.hour.startswith("*/") and not odd.only_theirs,
    ),
)


def unnamed(reader: str, answers: Answers) -> tuple[list[str], set[str]]:
    """What differs and is not named, and which names were used."""
    found, used = [], set()
    mine = by(by_us)
    for (text, at), other in answers.items():
        odd = odd_of(text, at, mine[text, at], other)
        if odd is None:
            continue
        named = [known.why for known in KNOWN if known.reader == reader and known.fits(odd)]
        used |= set(named[:1])
        if not named:
            found.append(f"{text!r} in {at.zone} from {at.begin_s}: {told(odd, at.zone)}")
    return found, used


def told(odd: Odd, zone: str) -> str:
    if odd.refused_by:
        return f"refused by {odd.refused_by}"

    def shown(times: Sequence[int]) -> list[str]:
        return [datetime.fromtimestamp(at, ZoneInfo(zone)).isoformat() for at in times[:5]]

    return f"only ours {shown(odd.only_ours)}, only theirs {shown(odd.only_theirs)}"


def held(reader: str, answers: Answers) -> None:
    found, used = unnamed(reader, answers)
    assert found == [], f"seed {SEED}: {len(found)} differences without a name"
    assert used == {known.why for known in KNOWN if known.reader == reader}


@pytest.mark.slow
def test_croniter_and_we_differ_where_it_is_known() -> None:
    held(CRONITER, by(by_croniter))


def test_cronsim_and_we_differ_where_it_is_known() -> None:
    held(CRONSIM, by(by_cronsim))


@pytest.mark.slow
def test_cron_parser_and_we_differ_where_it_is_known() -> None:
    held(PARSER, by_cron_parser())
