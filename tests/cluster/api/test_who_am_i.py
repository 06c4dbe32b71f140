"""What a caller may do, as the caller is shown it: compared with what is then refused."""

from __future__ import annotations

from raftsched.proto.contract import methods
from raftsched.proto.v1 import access_pb2, job_pb2
from raftsched.statemachine.core.instants import timestamp

from .conftest import Served, Start
from .talk import Anything, refused
from .test_auth import Role, access, bearer, jobs, make

Kind = access_pb2.Caller.Kind
ASK = access_pb2.WhoAmIRequest()


async def ask(served: Served, metadata: Anything) -> access_pb2.Caller:
    answer = await access(served).WhoAmI(ASK, metadata=metadata)
    assert isinstance(answer, access_pb2.Caller)
    return answer


async def test_before_there_are_tokens_everybody_is_an_admin_without_a_name(start: Start) -> None:
    caller = await ask(await start("a"), ())

    assert (caller.kind, caller.name) == (Kind.KIND_ANONYMOUS, "")
    assert caller.see_payloads
    [grant] = caller.grants
    assert (grant.namespace, grant.role) == ("", Role.ROLE_ADMIN)
    assert list(grant.calls) == sorted(method.name for method in methods())


async def test_each_role_is_shown_what_it_may_call(start: Start) -> None:
    served = await start("a")
    root = await make(served, "root", Role.ROLE_ADMIN)
    expires = served.node.sessions.wall_ms() + 60_000
    for role in (Role.ROLE_ADMIN, Role.ROLE_EDITOR, Role.ROLE_WORKER, Role.ROLE_VIEWER):
        for namespace in ("", "default"):
            name = f"{role}-{namespace}"
            secret = await make(
                served, name, role, root, namespace=namespace, expire_time=timestamp(expires)
            )

            caller = await ask(served, bearer(secret))

            assert (caller.kind, caller.name) == (Kind.KIND_TOKEN, name)
            assert caller.see_payloads == (role != Role.ROLE_VIEWER)
            assert caller.expire_time.ToMilliseconds() == expires
            [grant] = caller.grants
            assert (grant.namespace, grant.role) == (namespace, role)
            assert "AccessService/WhoAmI" in grant.calls
            for method in methods():
                if method.streams or method.name not in ("JobService/ListJobs", *UNLIKE):
                    continue
                call: Anything = served.channel.unary_unary(
                    method.path, request_serializer=lambda request: request.SerializeToString(),
                    response_deserializer=method.response.FromString,
                )  # fmt: skip
                reason = ""
                if method.name not in grant.calls:
                    reason = (await refused(call(method.request(), metadata=bearer(secret)))).reason
                    assert reason == "FORBIDDEN", (method.name, name)
                else:
                    await call(method.request(), metadata=bearer(secret))


# A read for admins of all namespaces, one for admins of a namespace, and one for everybody.
UNLIKE = ("AccessService/ListAccessTokens", "AccessService/ListAuditRecords")


async def test_nobody_is_shown_nothing(start: Start) -> None:
    served = await start("a")
    await make(served, "root", Role.ROLE_ADMIN)

    refusal = await refused(access(served).WhoAmI(ASK))

    assert refusal.reason == "UNAUTHENTICATED"


async def test_a_viewer_of_payloads_is_shown_that(start: Start) -> None:
    served = await start("a")
    root = await make(served, "root", Role.ROLE_ADMIN)
    secret = await make(served, "see", Role.ROLE_VIEWER, root, see_payloads=True)

    caller = await ask(served, bearer(secret))

    assert caller.see_payloads
    assert not caller.HasField("expire_time")
    await jobs(served).ListJobs(job_pb2.ListJobsRequest(), metadata=bearer(secret))
