"""Methods of objects of unknown kind: their names may show what they do."""

from __future__ import annotations

from streamsafe.apis import names as apis
from streamsafe.order.symbolic import ALWAYS
from streamsafe.static import element_keys, fields, hints, parts
from streamsafe.static.facts import BUCKET, GRADIENTS
from streamsafe.static.state import State
from streamsafe.static.transfer.part import Part
from streamsafe.static.transfer.tensor_methods import _TENSOR_METHODS, HOOK_REGISTRATIONS
from streamsafe.static.transfer.tensors import Call
from streamsafe.static.values import (
    EACH,
    FUTURE,
    NONE,
    PLAIN,
    UNKNOWN,
    Api,
    Class,
    Const,
    Container,
    Event,
    Function,
    Graph,
    Instance,
    Method,
    Name,
    Opaque,
    Partial,
    Stream,
    Tensor,
    Tuple,
    Value,
    iterate,
    union,
)

PARTS_OF_MODULES = frozenset(
    "parameters named_parameters buffers named_buffers modules named_modules children named_children state_dict".split()
)
"""Methods of a module that iterate over what it holds."""

_AMBIGUOUS = frozenset(("split", "view", "select", "storage"))
"""Methods of tensors that texts, tables and other objects have too."""

LIBRARY_METHODS = frozenset(
    {*_TENSOR_METHODS, *apis.STREAM_METHODS, *apis.EVENT_METHODS, *apis.GRAPH_METHODS, *apis.VIEW_METHODS}
    | apis.METADATA_METHODS
    | apis.SCALAR_METHODS
    | apis.BLOCKING_METHODS
    | apis.ARITHMETIC_METHODS
)
"""Methods of streams, events, graphs and tensors."""


class UnknownObjects(Part):
    """Methods of objects of unknown kind."""

    def opaque_method(self, receiver: Opaque, name: str, call: Call, st: State) -> Value:
        """A method of an object of unknown kind: its name may tell what it is."""
        for role in (
            self._of_device,
            self._of_parser,
            self.torch_modules.of_trainer,
            self.torch_modules.of_optimizer,
            self._of_executor,
            self._of_recipient,
            self._of_module,
            self._of_event,
            self._of_collection,
        ):
            answer = role(receiver, name, call, st)
            if answer is not None:
                return answer
        return self._of_tensor(receiver, name, call, st)

    def _of_device(self, receiver: Opaque, name: str, call: Call, st: State) -> Value | None:
        """Of a stream, a graph, the name of a device, or a module that makes arrays."""
        if name in apis.OPAQUE_STREAM_METHODS:
            call.args.insert(0, Stream(receiver.name, self.tensors.default_library))
            self.tensor_methods.table_known(receiver.name)
            return self.library.verb(apis.STREAM_METHODS[name], call, st)
        if name in ("capture_begin", "capture_end", "replay"):
            call.args.insert(0, Graph(receiver.name))
            return self.library.verb(apis.GRAPH_METHODS[name], call, st)
        if name == "startswith" and len(call.args) == 1:
            return self.devices.is_of_kind(receiver, call.args[0])
        return self.arrays.array_maker(receiver, name, call, st)

    def _of_parser(self, receiver: Opaque, name: str, call: Call, st: State) -> Value | None:
        """Of a parser of command lines."""
        if name not in apis.PARSING_METHODS:
            return None
        parsed = Opaque(receiver.name.child("parsed"))
        self.run.settings.add(parsed.name.base())
        return Tuple((parsed, UNKNOWN)) if name == "parse_known_args" else parsed

    def _of_executor(self, receiver: Opaque, name: str, call: Call, st: State) -> Value | None:
        """Of a thread, a thread pool, a future, or what threads tell one another by."""
        if st.store.marked(receiver.name, fields.SIGNAL):
            return self.threads.signal_method(receiver, name, call, st)
        if st.store.marked(receiver.name, fields.THREAD):
            return self.threads.thread_method(receiver, name, call, st)
        if (
            name == "submit"
            and call.args
            and (
                isinstance(call.args[0], (Api, Function, Partial, Method)) or self.is_bound(call.args[0], st)
            )
        ):
            syncs = self.run.waits
            with self.threads.passed_to_thread(call.args[0], call.args[1:], "submit()", call, st):
                made = self.threads.in_thread(call.args[0], call.args[1:], call.kwargs, call, st, beside=True)
                future = Partial(FUTURE, (made,), ())
            if self.run.waits > syncs:
                st.threads = st.threads | {call.site: None}
            return future
        if st.graphs and self.placement.gives_other_memory(name, call):
            self.graph_memory.moved_module(st, receiver, call.site)
        if name in ("shutdown", "result"):
            self.threads.threads_done(st)
        if st.store.marked(receiver.name, fields.EXECUTOR) and name == "map":
            with self.threads.passed_to_thread(
                call.get(0, "fn") or UNKNOWN, call.args[1:], "map()", call, st
            ):
                return self.threads.mapped_in_threads(call, st)
        if name == "run_in_executor" and len(call.args) > 1:
            return self.threads.in_thread(call.args[1], call.args[2:], call.kwargs, call, st)
        if st.store.marked(receiver.name, fields.EXECUTOR) and name == "submit":
            with self.threads.passed_to_thread(
                call.get(0, "fn") or UNKNOWN, call.args[1:], "submit()", call, st
            ):
                return UNKNOWN
        return None

    def _of_recipient(self, receiver: Opaque, name: str, call: Call, st: State) -> Value | None:
        """Of somebody on the host who is given something: a queue, a file, a logger."""
        if name in apis.HANDING_METHODS and (call.args or call.starred):
            return self.methods.pass_to_receiver(name, call, st)
        return None

    def _of_module(self, receiver: Opaque, name: str, call: Call, st: State) -> Value | None:
        """Of a base, a texture, or a module that keeps hooks and functions."""
        if name == "__new__" and receiver.name.site == "super()":
            return self.instances.do_new_object(call, st)
        if name == "__init__" and receiver.name == Name("super()", (apis.PACKS,)):
            self.hooks.packing_by(call, st, st.store.get((self.run.stack[-1].frame, "self"), NONE))
            return NONE
        if name in ("copy_from", "copy_to") and self.tensors.default_library == "cupy" and call.args:
            return self.interop.texture_copy(receiver, name, call, st)
        if name.startswith("register_forward"):
            return self.hooks.keep_forward_hook(receiver, name, call, st)
        if name in HOOK_REGISTRATIONS or name == apis.AFTER_PASS:
            return self.hooks.register_hooks(name, call, st, receiver)
        if receiver.name == BUCKET and name in ("buffer", "get_tensor", "gradients", "get_tensors"):
            return Tensor(GRADIENTS, part=parts.of_modules(None, self.run.hook_modules))
        held = st.store.get((receiver.name, name))
        if held is not None:
            return self.calls.call_value(held, call, st)
        return None

    def _of_event(self, receiver: Opaque, name: str, call: Call, st: State) -> Value | None:
        """Of a module of the device, an event or a stream by its name, or an object of a class of the file."""
        if name in apis.DEVICE_MODULE_METHODS and self._is_device_module(receiver, name, call):
            return self.library.verb(apis.DEVICE_MODULE_METHODS[name], call, st)
        recorded = (receiver.name, fields.RECORDED_ON) in st.store or receiver.name in self.run.own_events
        if name in apis.EVENT_METHODS and (receiver.name in self.run.carriers or recorded):
            if recorded:
                call.args.insert(0, Event(receiver.name))
                return self.library.verb(apis.EVENT_METHODS[name], call, st)
            if name in apis.STREAM_METHODS:
                call.args.insert(0, Stream(receiver.name, self.tensors.default_library))
                return self.library.verb(apis.STREAM_METHODS[name], call, st)
        if name == "record" and (_event_like(receiver.name) or self._on_stream(call)):
            call.args.insert(0, Event(receiver.name))
            return self.library.verb("event_record", call, st)
        polled = name in ("synchronize", "query") and "event" in _called_on(call).lower()
        polled |= name == "query" and not call.everything() and receiver.name not in self.run.carriers
        if polled or (name in ("wait", "synchronize", "query") and _event_like(receiver.name)):
            call.args.insert(0, Event(receiver.name))
            return self.library.verb(apis.EVENT_METHODS[name], call, st)
        unit = self.definitions.class_of_method(name, call)
        if unit is not None:
            instance = self.instances.materialized(receiver, unit, st)
            return self.methods.call_method(instance, name, call, st)
        return None

    def _on_stream(self, call: Call) -> bool:
        """Whether a call is given a stream, and nothing else."""
        return len(call.args) == 1 and all(
            isinstance(v, Stream) or (isinstance(v, Opaque) and v.name in self.run.carriers)
            for v in iterate(call.args[0])
        )

    def _of_collection(self, receiver: Opaque, name: str, call: Call, st: State) -> Value | None:
        """Of a tensor, as the method alone tells, or of what holds several things."""
        if name in ("resize_",) and receiver.name.site == "storage":
            return self.tensor_methods.tensor_resize(receiver, call, st)
        if name in apis.SCALAR_METHODS and st.store.marked(receiver.name, fields.CONSTRUCTED):
            return PLAIN  # a method of that class, which knows what it waits for
        if name in _TENSOR_METHODS or name in apis.SCALAR_METHODS:
            if name in ("get", "set", "copy"):
                return self.tensor_methods.mapping_or_array(receiver, name, call, st)
            return self.tensor_methods.tensor_method(receiver, name, call, st)
        if name in PARTS_OF_MODULES:
            return Opaque(receiver.name.child(f"{name}()"))
        mapping = name in ("items", "keys", "values") and not call.args  # no tensor has the first two
        keeps = name == "add" and any(
            isinstance(v, (Instance, Class, Function, Stream, Event, Tuple))
            for a in call.args
            for v in iterate(a)
        )
        if mapping or keeps:
            return self._held_or_kept(receiver, name, call, st)
        return None

    def _of_tensor(self, receiver: Opaque, name: str, call: Call, st: State) -> Value:
        """Of what may be a tensor or not."""
        if name in apis.ARITHMETIC_METHODS and not self.memory.is_plain(receiver.name):
            if (
                call.args
                or name not in ("half", "float", "double", "bfloat16", "type", "int", "long", "bool")
                or receiver.name in st.order.made
            ):
                self.run.tensor_rows.add(receiver.name.base())
                self.tensors.mark_tensor(st, receiver)
        foreign = self.is_function(name, call, st) or not (
            name in apis.TENSOR_METHODS or name.endswith("_") or self.tensors.default_library == "cupy"
        )
        if not foreign and call.args and name in apis.VIEW_METHODS:
            base = receiver.name.base()
            foreign = base in self.run.non_tensors and base not in self.run.tensorish
        if foreign:
            self.run.non_tensors.add(receiver.name.base())
        if name == "barrier" and self.expressions.is_tensor(st, receiver):
            return UNKNOWN  # of a handle of memory that several devices share: among these
        if name in apis.ORDERING_METHODS and not _text_method(receiver.name, name):
            self.effects.host_learns_everything(st, call.site)
            return Opaque(self.objects.fresh(call.node, st, name))
        shown = not foreign or receiver.name.base() not in self.run.presumed
        if (shown and self.expressions.is_tensor(st, receiver)) or (
            receiver.name in st.order.made
            and receiver.name.base() in self.run.results
            and name in apis.TENSOR_METHODS
        ):
            return self.tensor_methods.tensor_method(receiver, name, call, st)
        if name == "size":
            return self.computed.size_of(receiver, call, st)
        if name in ("dim", "numel", "is_contiguous", "stride", "element_size", "data_ptr"):
            if call.everything():
                return PLAIN
            # not known, but the same each time
            answer = Opaque(receiver.name.child(f"{name}()"), part=receiver.part)
            self.run.plain.add(answer.name.base())
            return answer
        if name in apis.VIEW_METHODS and not foreign and (name not in _AMBIGUOUS or _of_axes(name, call)):
            self.tensors.rows_are_tensors(st, [receiver])
            return self.tensor_methods.viewed(receiver, name, call, st)
        if name.endswith("_") and not name.startswith("_") and len(name) > 2:
            self.tensors.mark_tensor(st, receiver)
            return self.tensor_methods.tensor_method(receiver, name, call, st)
        if (
            name in ("eval", "train", "requires_grad_", "half", "float", "bfloat16", "double")
            and not call.args
        ):
            return receiver
        if name in ("append", "add", "appendleft", "insert"):
            return self._held_or_kept(receiver, name, call, st)
        if name in ("pop", "popleft", "popitem", "get", "get_nowait", "recv"):
            held = st.store.get((receiver.name, "*"))
            if held is None and name == "popitem":
                held = self._put_there(receiver, st)
            if held is None and name == "pop" and call.args:
                held = element_keys.under(st.store.of(receiver.name), element_keys.index_of(call.args[0]))
            taken = held if held is not None else Opaque(self.objects.fresh(call.node, st, name))
            return Tuple((UNKNOWN, taken)) if name == "popitem" else taken
        return self.unseen.unmodelled(receiver, call, st, name)

    @staticmethod
    def _put_there(receiver: Opaque, st: State) -> Value | None:
        """What has been put under keys of something that is not seen made: who takes something out has that."""
        put = [
            v for key, v in st.store.of(receiver.name).items() if type(key) is tuple and key[:1] == ("[]",)
        ]
        return union((v, ALWAYS) for v in put) if put else None

    def is_bound(self, value: Value, st: State) -> bool:
        """Whether an attribute of an object of unknown kind is a method, as its name or the object's tells."""
        if not isinstance(value, Opaque) or value.name.parent is None:
            return False
        name = value.name.site
        if (value.name.parent, name) in st.store:
            return False  # something has been assigned to it
        return name in LIBRARY_METHODS or (
            name == "step" and self.torch_modules.optimizes(Opaque(value.name.parent), st)
        )

    def is_function(self, name: str, call: Call, st: State) -> bool:
        """Whether what is called like a view of a tensor is a function of a module: it is given tensors."""
        return (
            name in apis.VIEW_METHODS
            and not name.endswith("_as")
            and any(
                isinstance(t, Tensor) or self.expressions.is_tensor(st, t)
                for a in call.args
                if not isinstance(a, Const)
                for t, _ in self.memory.tensors_in(st, a)
            )
        )

    def _held_or_kept(self, receiver: Opaque, name: str, call: Call, st: State) -> Value:
        """What a mapping holds, or something that a list or a set of unknown making keeps."""
        if name == "items":
            return Partial(Api("builtins.items"), (receiver,), ())
        if name == "keys":
            return Opaque(receiver.name.child("keys()"))
        if name == "values":
            return receiver
        for value in call.args[-1:]:
            old = st.store.get((receiver.name, "*"))
            st.store[(receiver.name, "*")] = union([*([(old, ALWAYS)] if old else []), (value, ALWAYS)])
        return NONE

    def _is_device_module(self, receiver: Opaque, name: str, call: Call) -> bool:
        text = str(receiver.name.site).lower()
        if name in (
            "Stream",
            "current_stream",
            "default_stream",
            "set_stream",
            "StreamContext",
            "is_current_stream_capturing",
        ):
            return True
        return hints.names_device_module(text)


def _last_word(name: Name) -> str:
    for part in name.chain():
        if isinstance(part.site, str) and part.site != EACH:
            return part.site.lower()
    return ""


def _event_like(name: Name) -> bool:
    return hints.names_event(_last_word(name))


def _of_axes(name: str, call: Call) -> bool:
    """Whether ``split()`` and its like get sizes or an axis: that means a tensor."""
    if name == "view" and len(call.args) > 1:
        return True  # a size for each axis
    first = call.get(0, "")
    sized = isinstance(first, (Tuple, Container)) or (isinstance(first, Const) and type(first.value) is int)
    return "dim" in call.kwargs or sized


def _text_method(name: Name, method: str) -> bool:
    """``", ".join(...)`` and its like are no waits."""
    return (
        method in ("join", "flush") and "thread" not in _last_word(name) and "process" not in _last_word(name)
    )


def _called_on(call: Call) -> str:
    """The name by which a method's object goes at its call."""
    base = getattr(getattr(call.node, "func", None), "value", None)
    word = getattr(getattr(base, "attr", base), "value", "")
    return word if isinstance(word, str) else ""
