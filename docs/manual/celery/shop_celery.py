"""Ten tasks of a shop."""

from datetime import UTC, datetime

from celery import Celery, Task
from celery.schedules import crontab

app = Celery("shop_celery", broker="memory://", backend="cache+memory://")
app.conf.timezone = "Europe/Berlin"
done: list[str] = []


@app.task
def welcome(customer: str) -> None:
    done.append(f"welcome {customer}")


@app.task(queue="mail")
def send(to: str, text: str) -> None:
    done.append(f"{text} to {to}")


@app.task(autoretry_for=(ConnectionError,), max_retries=4, retry_backoff=5, retry_backoff_max=600)
def charge(order: int, cents: int) -> int:
    done.append(f"charge {order}")
    return cents


@app.task(bind=True, max_retries=3)
def fetch_rates(self: Task, day: str) -> str:
    try:
        return rates_of(day)
    except TimeoutError as error:
        raise self.retry(exc=error, countdown=60) from error


@app.task(time_limit=30)
def resize(picture: str) -> str:
    return f"{picture}.small"


@app.task(acks_late=True)
def ship(order: int) -> None:
    done.append(f"ship {order}")


@app.task(ignore_result=True)
def note_visit(page: str) -> None:
    done.append(f"visit {page}")


@app.task(rate_limit="10/s")
def index(product: int) -> None:
    done.append(f"index {product}")


@app.task
def clean_up() -> None:
    done.append("clean up")


@app.task
def report(to: str) -> None:
    done.append(f"report to {to}")


app.conf.beat_schedule = {
    "clean-up": {"task": clean_up.name, "schedule": crontab(minute="0", hour="2")},
    "report": {
        "task": report.name,
        "schedule": crontab(minute="0", hour="9", day_of_week="mon"),
        "kwargs": {"to": "anna"},
    },
}


def rates_of(day: str) -> str:
    return f"rates of {day}"


def order_placed(order: int, customer: str, pictures: list[str]) -> tuple[int, list[str]]:
    welcome.delay(customer)
    send.apply_async(("anna", "An order"), countdown=1)
    ship.apply_async(kwargs={"order": order}, eta=datetime.now(UTC))
    charged = charge.delay(order, cents=995)
    small = [resize.delay(picture) for picture in pictures]
    return charged.get(timeout=30), [one.get(timeout=30) for one in small]
