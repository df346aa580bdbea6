"""`deeplda network NAME`: print the layers of a network as a table."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from deeplda.cli.shared_options import Json, WholeNumber
from deeplda.errors import InputError
from deeplda.printing import say_json

# Default sample shapes for the networks that are not meant for small colour images.
_DEFAULT_INPUTS = {"mlp": "64", "convnet-small": "1x8x8"}


def network(
    name: Annotated[
        str, Parameter(help="dorfernet, fastnet, convnet-small, mlp, identity, or your own as module.path:callable.")
    ] = "dorfernet",
    /,
    *,
    input_: Annotated[
        str | None,
        Parameter(name="--input", help="Shape of one sample, such as 3x32x32 for images or 64 for feature vectors."),
    ] = None,
    embedding_dim: Annotated[WholeNumber, Parameter(help="Output dimension.")] = 10,
    width: Annotated[float, Parameter(help="Multiplier for the channels of hidden layers.")] = 1.0,
    json_: Json = False,
) -> None:
    """Show the layers of a network with their output shapes, parameters and FLOPs."""
    from deeplda.networks import build_network, describe

    shape = _shape(input_ or _DEFAULT_INPUTS.get(name, "3x32x32"))
    rows = describe(build_network(name, shape, embedding_dim, width=width), shape)
    parameters, flops = sum(row.parameters for row in rows), sum(row.flops for row in rows)
    if json_:
        layers = [row._asdict() for row in rows]
        say_json({"network": name, "input": shape, "layers": layers, "parameters": parameters, "flops": flops})
        return

    from rich.table import Table

    from deeplda.cli.terminal import print_table

    table = Table("layer", title=f"{name}, input {'x'.join(map(str, shape))}", title_justify="left", show_footer=True)
    table.columns[0].footer = "all"
    table.add_column("output", justify="right")
    table.add_column("parameters", f"{parameters:,}", justify="right")
    table.add_column("FLOPs per sample", f"{flops:,}", justify="right")
    for row in rows:
        table.add_row(row.layer, "x".join(map(str, row.output_shape)), f"{row.parameters:,}", f"{row.flops:,}")
    print_table(table)


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(size) for size in text.lower().split("x"))
    except ValueError:
        shape = ()
    if len(shape) not in (1, 3) or min(shape) < 1:
        do = "write channels x height x width, such as 3x32x32, or the length of a feature vector, such as 64"
        raise InputError(f"--input {text!r} is not a shape: {do}")
    return shape
