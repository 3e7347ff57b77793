"""What runs around the call of a module and within a backward pass: hooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamsafe.apis import names as apis
from streamsafe.order.symbolic import ALWAYS
from streamsafe.static import fields, parts
from streamsafe.static.facts import BUCKET, GRADIENTS, PARAMETER, PASS, Site
from streamsafe.static.source import ClassUnit
from streamsafe.static.state import Ordered, State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensor_methods import HOOK_REGISTRATIONS
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    EACH,
    NONE,
    UNKNOWN,
    Class,
    Const,
    Context,
    Function,
    Instance,
    Name,
    Opaque,
    Partial,
    Tensor,
    Tuple,
    Value,
    alternatives,
    iterate,
    under,
    union,
)

if TYPE_CHECKING:
    from streamsafe.static.transfer.run_state import RunState

ALL_FORWARD_HOOKS = tuple(
    each for kept in (fields.PRE_FORWARD_HOOKS, fields.FORWARD_HOOKS) for each in (kept, kept.of(EACH))
)
"""Those of modules, and of each module that a loop iterates over, in the order in which a call runs them."""

FEW_SAVED = 1
"""So many places in a block stand for all at which tensors are saved."""

PACKED_IN_A_ROW = 2
"""So many tensors are saved one after another: the second may use or drop what the first has left."""

_GIVEN = {
    "register_hook": "g",
    "register_post_accumulate_grad_hook": "p",
    "register_full_backward_hook": "mgg",
    "register_backward_hook": "mgg",
    "register_full_backward_pre_hook": "mg",
    "register_multi_grad_hook": "g",
    "register_comm_hook": "b",
}
"""What a function is given, by the method that registered it: a gradient or several, the parameter, the module, a
bucket of gradients."""


def hook_arguments(
    registered: str, modules: frozenset[Name] = frozenset(), parameter: Name = PARAMETER
) -> tuple[Value, ...]:
    """What autograd gives a function.

    Args:
        registered: the method that registered it.
        modules: whose gradients it is given, where that is known.
        parameter: which of them it is called for.
    """
    given = {
        "g": Tensor(GRADIENTS, part=parts.of_modules(None, modules)),
        "p": Opaque(parameter),
        "m": Opaque(Name("a module")),
        "b": Opaque(BUCKET),
    }
    return tuple(given[what] for what in _GIVEN.get(registered, ""))


def hooked(hook: Value) -> Function | None:
    """The function of the file that a hook is; None where it is none."""
    while isinstance(hook, Partial):
        hook = hook.function
    return hook if isinstance(hook, Function) else None


def bound_arguments(hook: Value) -> list[Value]:
    """What a hook is given before what autograd gives it."""
    return [*bound_arguments(hook.function), *hook.args] if isinstance(hook, Partial) else []


class Hooks(Part):
    """Functions that a module's call and a backward pass run."""

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self.passing: bool = False
        """A backward pass calls its hooks."""
        self.hooked: dict[Value, Ordered[Name]] = {}
        """By hook, the objects that it was registered with."""
        self.saved: set[Site] = set()
        """The places at which the block under way has saved tensors."""

    def keep_forward_hook(self, module: Opaque | Instance, name: str, call: Call, st: State) -> Value:
        """A function that runs before, or after, a module is called, or one that it is a part of."""
        hook = call.get(0, "hook")
        kept = fields.PRE_FORWARD_HOOKS if "pre_hook" in name else fields.FORWARD_HOOKS
        if isinstance(hook, (Function, Partial)):
            function = hooked(hook)
            self.run.hooks_run_streams |= function is not None and self.functions.is_relevant(function.unit)
            places = [(owner, kept) for owner in module.name.chain()]
            if module.name.site == EACH and module.name.parent is not None:
                places.append((module.name.parent, kept.of(EACH)))
            for place in places:
                old = st.store.get(place)
                st.store[place] = union([(old or NONE, ALWAYS), (hook, st.path)])
        return UNKNOWN

    def run_forward_hooks(
        self, kept: fields.Field[Value], module: Opaque | Instance, call: Call, given: list[Value], st: State
    ) -> None:
        """A module is called: its hooks are given it, what it was given, and, after it, what it returns."""
        hooks = st.store.get((module.name, kept))
        if hooks is None and module.name.site == EACH and module.name.parent is not None:
            hooks = st.store.get((module.name.parent, kept.of(EACH)))  # another one of those is used
        for hook, _ in alternatives(hooks, st.path) if hooks is not None else ():
            if hook != NONE and not st.dead:
                arguments = [module, Tuple(tuple(call.args)), *given]
                self.calls.call_value(hook, Call(call.node, call.site, arguments), st)

    def register_hooks(self, name: str, call: Call, st: State, owner: Value = UNKNOWN) -> Value:
        """Functions that autograd will call for a tensor, a parameter or a module."""
        given = call.everything()
        if name == "register_comm_hook":  # a state, and a function of that and a bucket
            hook, state = call.get(1, "hook"), call.get(0, "state") or NONE
            given = [Partial(inner, (state,), ()) for inner in iterate(hook or UNKNOWN)]
        for value in given:
            if name in HOOK_REGISTRATIONS or name == apis.AFTER_PASS:
                self.register_hook(value, name, st)
                for hook in iterate(value):
                    self.hooked.setdefault(hook, {}).update(
                        (name, None) for name in self.gradients.names_in(st, owner)
                    )
        return UNKNOWN

    def register_hook(self, value: Value, name: str, st: State) -> None:
        """A hook runs in each backward pass, and by itself on its node's stream, whichever that is (TA-06)."""
        for inner in iterate(value):
            function = hooked(inner)
            if function is None:
                continue
            if name != apis.AFTER_PASS:
                self.run.entered.add(function.unit)
                if not any(f.unit is function.unit for f, *_ in self.run.hooks):
                    self.run.hooks.append((function, bound_arguments(inner), st.copy(), name))
            st.store.add(GRADIENTS, fields.GRADIENT_HOOKS.of(name), inner)

    def do_saved_tensors_hooks(self, call: Call, st: State) -> Value:
        """``saved_tensors_hooks(pack, unpack)``."""
        return Context("packing", (self.packing_by(call, st),))

    def packing_by(self, call: Call, st: State, holder: Value = NONE) -> Tuple:
        """Two functions that autograd calls where it saves a tensor and where it needs it again.

        Args:
            call: what is given them.
            st: changed in place.
            holder: the object of which they are.
        """
        packing = Tuple((call.get(0, "pack_hook") or UNKNOWN, call.get(1, "unpack_hook") or UNKNOWN))
        self.register_hook(packing.items[0], apis.PACKS, st)
        for pack in iterate(packing.items[0]):
            self.run.unpacked_by[pack] = packing.items[1]
        if isinstance(holder, Instance):
            st.store[(holder.name, fields.SAVED_TENSORS_HOOKS)] = packing
        return packing

    @contextmanager
    def packing(self, manager: Value, st: State) -> Iterator[None]:
        """Within the block of a context manager that packs what autograd saves, it does so."""
        packing: Value | None = None
        if isinstance(manager, Context) and manager.kind == "packing":
            packing = manager.payload[0]
        elif type(manager) is Instance:
            packing = st.store.get((manager.name, fields.SAVED_TENSORS_HOOKS))
        if packing is None:
            yield
            return
        outer = st.store.get((GRADIENTS, fields.SAVED_TENSORS_HOOKS))
        self.saved.clear()
        st.store[(GRADIENTS, fields.SAVED_TENSORS_HOOKS)] = packing

        def leave(state: State) -> None:
            state.store.pop((GRADIENTS, fields.SAVED_TENSORS_HOOKS), None)
            if outer is not None:
                state.store[(GRADIENTS, fields.SAVED_TENSORS_HOOKS)] = outer

        with self.call_stack.exits(leave):
            yield
        leave(st)

    def saved_tensor(self, st: State, name: Name, site: Site) -> Tensor:
        """A tensor that autograd gives to what packs it, and keeps no more."""
        saved = Tensor(name)
        self.run.closed.add(name)
        self.tensors.mark_tensor(st, saved)
        st.store[(name, fields.PLACE)] = Const("device")
        self.memory.allocate(st, name, "torch", site)
        return saved

    def save_for_backward(self, st: State, site: Site, text: str) -> None:
        """A forward pass saves a tensor that it has computed: where it is to be packed, it is."""
        packing = st.store.one(GRADIENTS, fields.SAVED_TENSORS_HOOKS)
        if packing is None or self.passing or st.dead:
            return
        if len(self.saved) >= FEW_SAVED and site not in self.saved:
            return
        self.saved.add(site)
        pack, unpack = packing.items
        for _ in range(PACKED_IN_A_ROW):
            self.pack_saved(st, pack, unpack, site, text)

    def pack_saved(self, st: State, pack: Value, unpack: Value, site: Site, text: str) -> None:
        """A tensor that has been computed is packed, and has by then no other name."""
        self.passing = True
        try:
            saved = self.saved_tensor(st, self.objects.fresh(site.node, st, "saved"), site)
            self.accesses.access(st, saved, site, text, writes=True)
            packed = self.calls.call_value(pack, Call(site.node, site, [saved]), st)
            self.containers.lose(st, saved)
        finally:
            self.passing = False
        if not st.dead:
            self.lifetimes.release_unreachable(st, site, [packed, pack, unpack])
            self.keep_packed(st, unpack, packed)

    def keep_packed(self, st: State, unpack: Value, packed: Value) -> None:
        """What has been packed on the current stream is to be unpacked by a backward pass."""
        row = Tuple((unpack, packed, self.effects.current(st, "torch")))
        st.store.add(GRADIENTS, fields.PACKED_TENSORS, row)

    def unpack_saved(self, st: State, site: Site, text: str) -> None:
        """A backward pass needs what was saved, on the stream on which it was (TA-01)."""
        rows = list(iterate(st.store.pop((GRADIENTS, fields.PACKED_TENSORS), NONE)))
        while rows:
            row = rows.pop()  # what was saved last is needed first
            if isinstance(row, Tuple) and not st.dead:
                unpack, packed, stream = row.items
                self.run.unpacked.update(iterate(unpack))
                before = dict(st.current)
                for own, guard in self.effects.possible_streams(st, "torch", stream):
                    for s, way in self.effects.possible_streams(st, "torch"):
                        st.order.learn(own.name, s.name, guard=guard & way)
                st.current = {**before, "torch": stream}
                needed = self.calls.call_value(unpack, Call(site.node, site, [packed]), st)
                if not st.dead:
                    for tensor, way in self.memory.tensors_in(st, needed):
                        if not self.tensors.is_host(st, tensor):
                            self.accesses.access(st, under(tensor, way), site, text, writes=False)
                    self.containers.lose(st, needed)
                    self.lifetimes.release_unreachable(st, site, rows)
                    for hook in iterate(unpack):
                        if isinstance(hook, Function) and isinstance(hook.receiver, (Instance, Opaque)):
                            self.paths.track_flags(st, hook.receiver.name)
                st.current = before

    def keep_pass(self, function: Class, context: Opaque, st: State) -> None:
        """A function of the file's own takes part in a forward pass: one that is captured is captured backward, too."""
        if st.capture is not None:
            row = Tuple((function, context, Const(st.capture.site)))
            st.store.add(GRADIENTS, fields.AUTOGRAD_FUNCTIONS, row)

    def run_captured_passes(self, st: State, site: Site) -> None:
        """A captured backward pass runs the functions whose forward pass the same capture holds."""
        for row in st.store.every(GRADIENTS, fields.AUTOGRAD_FUNCTIONS):
            if st.dead or st.capture is None:
                continue
            function, context, captured = row.items
            backward = (
                self.class_members.find_method(function.unit, "backward")
                if isinstance(function, Class)
                else None
            )
            if backward is None or captured != Const(st.capture.site):
                continue
            given = [
                self.tensors.new_tensor(st, site, "the gradient", library="torch", place="device")
                for _ in backward.node.params.params[1:]
            ]
            self.functions.call_function(Function(backward), [context, *given], {}, st, site.node)

    def run_functions_backward(self, st: State, site: Site) -> None:
        """A pass runs the functions that add to gradients beside ``.grad``: what a model applies is hardly seen."""
        names = self.run.file.functions_that_keep_gradients if st.capture is None else ()
        for owner in [
            self.definitions.unit(name) for name in names if f"{name}.backward" in self.run.relevant
        ]:
            unit = self.class_members.find_method(owner, "backward") if isinstance(owner, ClassUnit) else None
            if unit is None or st.dead:
                continue
            entered = unit in self.run.entered
            outputs = [
                self.tensors.new_tensor(st, site, "backward()", library="torch", place="device", tags=PASS)
                for _ in unit.node.params.params[1:]
            ]
            context = Opaque(Name("a context", (id(unit.node),)))
            self.functions.call_function(Function(unit), [context, *outputs], {}, st, site.node)
            if not entered:
                self.run.entered.discard(unit)  # it runs by itself as well, on whichever stream

    def run_gradient_hooks(self, st: State, site: Site, modules: frozenset[Name] = frozenset()) -> None:
        """A backward pass calls what was registered with parameters and tensors, on the stream of their nodes.

        That is taken to be the current one: hooks by themselves are interpreted where it is any. Each is given a
        gradient of its own. What was queued for the end of the pass follows.

        Args:
            st: changed in place.
            site: where the pass is.
            modules: whose gradients it writes, where that is known: hooks of others are not called.
        """
        if self.passing:
            return
        self.passing = True
        try:
            self.run_captured_passes(st, site)
            self.run_functions_backward(st, site)
            self._call_gradient_hooks(st, site, modules)
            for callback in iterate(
                st.store.pop((GRADIENTS, fields.GRADIENT_HOOKS.of(apis.AFTER_PASS)), NONE)
            ):
                if isinstance(callback, (Function, Partial)) and not st.dead:
                    self.calls.call_value(callback, Call(site.node, site), st)
        finally:
            self.passing = False
            self.run.hook_modules = frozenset()

    def _is_of_these(self, st: State, parameter: Name, owners: Iterable[Name]) -> None:
        """The parameter that a hook is given has what was put on those that it was registered with."""
        for owner in owners:
            for key, value in list(st.store.of(owner).items()):
                if isinstance(key, str) and key.isidentifier() and key != "grad":
                    st.store[(parameter, key)] = value

    def _call_gradient_hooks(self, st: State, site: Site, modules: frozenset[Name]) -> None:
        st.order.repeat(GRADIENTS, "a gradient before its hook")
        for name in sorted(HOOK_REGISTRATIONS):
            for hook in st.store.every(GRADIENTS, fields.GRADIENT_HOOKS.of(name)):
                owners = self.gradients.modules_behind(st, map(Opaque, self.hooked.get(hook, ())))
                if owners and modules and owners.isdisjoint(modules):
                    continue
                if isinstance(hook, (Function, Partial)) and not st.dead:
                    st.order.repeat("a gradient before its hook", GRADIENTS)
                    self.run.hook_modules = owners & modules if owners else modules
                    st.store.pop((PARAMETER, "grad"), None)  # each is called when a gradient is there
                    if "p" in _GIVEN[name]:
                        self._is_of_these(st, PARAMETER, self.hooked.get(hook, ()))
                    arguments = list(hook_arguments(name, self.run.hook_modules, PARAMETER))
                    self.calls.call_value(hook, Call(site.node, site, arguments), st)
                    st.order.move(GRADIENTS, "gradients after their hooks", lambda _: True)
        st.order.move("gradients after their hooks", GRADIENTS, lambda _: True)
        st.order.drop("a gradient before its hook")
