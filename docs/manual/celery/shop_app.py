"""Ten tasks of a shop."""

from datetime import UTC, datetime

from raftsched.client import App, Retry, RetryLater, Timeouts, cron

app = App(name="shop-app")
done: list[str] = []


@app.task
def welcome(customer: str) -> None:
    done.append(f"welcome {customer}")


@app.task(queue="mail")
def send(to: str, text: str) -> None:
    done.append(f"{text} to {to}")


@app.task(retry=Retry(5, first=5, factor=2, cap=600))
def charge(order: int, cents: int) -> int:
    done.append(f"charge {order}")
    return cents


@app.task(retry=Retry(4))
def fetch_rates(day: str) -> str:
    try:
        return rates_of(day)
    except TimeoutError as error:
        raise RetryLater(60) from error


@app.task(timeouts=Timeouts(attempt=30))
def resize(picture: str) -> str:
    return f"{picture}.small"


@app.task
def ship(order: int) -> None:
    done.append(f"ship {order}")


@app.task
def note_visit(page: str) -> None:
    done.append(f"visit {page}")


@app.task(queue="index")  # raftsched queue update index --rate 10
def index(product: int) -> None:
    done.append(f"index {product}")


@app.job(cron("0 2 * * *", zone="Europe/Berlin"))
def clean_up() -> None:
    done.append("clean up")


@app.job(cron("0 9 * * mon", zone="Europe/Berlin"), payload={"to": "anna"})
def report(to: str) -> None:
    done.append(f"report to {to}")


def rates_of(day: str) -> str:
    return f"rates of {day}"


def order_placed(order: int, customer: str, pictures: list[str]) -> tuple[int, list[str]]:
    welcome.defer_sync(customer)
    send.options(in_=1).defer_sync("anna", "An order")
    ship.options(at=datetime.now(UTC)).defer_sync(order=order)
    charged = charge.defer_sync(order, cents=995)
    small = resize.defer_many_sync(resize.entry(picture) for picture in pictures)
    return charged.result(timeout=30), [one.result(timeout=30) for one in small]
