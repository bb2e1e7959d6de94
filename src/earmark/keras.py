"""Auto-pooling, soft-max pooling and adaptive linear soft-max for Keras 3.

`AutoPool1D` and `SoftMaxPool1D` have the arguments, weight and configuration of the layers of those names in
`autopool`, the package of the paper's authors. A model written for it needs one changed line, `from earmark.keras
import AutoPool1D`; a model file saved with their layer opens with `keras.models.load_model(path,
custom_objects={"AutoPool1D": AutoPool1D})`. `LinearAutoPool1D` is the operator `linear-auto` of `earmark.pooling`.

Masks
-----
Their layers accept a mask and ignore it. Here *a mask's axes are the leading axes of the input, and what it marks False
affects neither values nor gradients, even where it holds NaN or infinity.*

=========================  ================  ====  ===========================  ==================
input                      mask              axis  what is pooled               mask of the output
=========================  ================  ====  ===========================  ==================
(batch, time, classes)     (batch, time)     1     the real frames of each bag  none
(batch, time, x, classes)  (batch, time)     1     the same, for each x         none
(batch, time, x, classes)  (batch, time)     2     x, in each real frame        (batch, time)
(batch, time, x, classes)  (batch, time, x)  2     the real x of each frame     (batch, time)
=========================  ================  ====  ===========================  ==================

The last column is for a mask that is attached to the input; not every version of Keras passes on an explicit one.
A negative axis counts from the end. Axis 0, the authors' default, is the batch; a mask together with axis 0 is an
error, since it marks frames within bags.

A bag without a real frame gives 0, with zero gradient: a compiled graph cannot raise an error, and a NaN would ruin the
loss of the whole batch. (`earmark.pooling` rejects such a bag.) With half precision, sums and exponentials are computed
in float32, and the result is rounded once.
"""

from collections.abc import Sequence
from operator import index
from typing import Any, TypeAlias

from earmark.errors import ArgumentError, DataError, MissingExtraError

try:
    import keras  # ships no types: everything of its is Any
except ModuleNotFoundError as error:
    if error.name == "keras":
        raise MissingExtraError("earmark.keras", "keras") from error
    error.add_note(
        "Keras is installed, but its backend is not. Its default is TensorFlow: set the environment variable "
        "KERAS_BACKEND to torch, which earmark has installed, or to jax, before keras is imported."
    )
    raise

__all__ = ["AutoPool1D", "LinearAutoPool1D", "SoftMaxPool1D"]

Tensor: TypeAlias = Any  # of whichever backend, or symbolic
Shape: TypeAlias = Sequence[int | None]

# Its exponential is 0 next to any real logit. Finite in float32, so that a bag of padding is a mean of zeros, not 0/0.
PADDING_LOGIT = -3e38
FLOOR = 1e-7  # of probabilities whose logarithm is taken, as in earmark.pooling


class _Pool1D(keras.Layer):  # type: ignore[misc]  # a subclass of Any, see the import
    """Base class of the layers, with the checked entry point; a subclass defines alpha."""

    def __init__(self, axis: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        try:
            self.axis = index(axis)
        except TypeError:
            raise ArgumentError(
                f"axis: expected an integer, got {axis!r}; to pool the frames of (batch, time, classes) use axis=1"
            ) from None
        self.supports_masking = True

    def _alpha(self) -> Tensor | float:
        raise NotImplementedError

    def _logits(self, x: Tensor) -> Tensor:
        """Logarithms of the frames' weights, up to a constant."""
        return self._alpha() * x

    def call(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool `x` (batch, time, ..., classes) along `axis`, leaving out what `mask` (batch, time) marks False.

        The default is the mask that is attached to `x`.
        """
        ops = keras.ops
        if mask is not None:
            mask = ops.cast(mask, "bool")
        axis = self._pooled_axis(x, mask)
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        x = ops.cast(x, dtype)
        if mask is not None:
            mask = ops.reshape(mask, (*ops.shape(mask), *[1] * (len(x.shape) - len(mask.shape))))
            x = ops.where(mask, x, 0.0)  # before any arithmetic: 0 * NaN is NaN, in the gradient too
        logits = self._logits(x)
        if mask is not None:
            logits = ops.where(mask, logits, PADDING_LOGIT)
        # Not ops.softmax, which warns about a bag of one frame.
        w = ops.exp(logits - ops.stop_gradient(ops.amax(logits, axis=axis, keepdims=True)))
        return ops.cast(ops.sum(w * x, axis=axis) / ops.sum(w, axis=axis), self.compute_dtype)

    def compute_mask(self, x: Tensor, mask: Tensor | None = None) -> Tensor | None:
        """The mask of the output: what is left of `mask` without the pooled axis, None if that is only the batch."""
        if mask is None:
            return None
        axis = self._pooled_axis(x, mask)
        if axis >= len(mask.shape):
            return mask
        return keras.ops.any(mask, axis=axis) if len(mask.shape) > 2 else None

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        """The shape of the input without the pooled axis."""
        axis = _resolve(self.axis, input_shape)
        return (*input_shape[:axis], *input_shape[axis + 1 :])

    def compute_output_spec(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Called by Keras while a model is built, which is when an invalid mask is rejected."""
        self._pooled_axis(x, mask)
        return super().compute_output_spec(x, mask=mask)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, for saving."""
        return {**super().get_config(), "axis": self.axis}

    def _pooled_axis(self, x: Tensor, mask: Tensor | None) -> int:
        """`axis` counted from the front, after checking that the input and the mask match it."""
        shape = tuple(x.shape)
        axis = _resolve(self.axis, shape)
        if shape[axis] == 0:
            raise DataError(
                f"input: expected at least one frame along axis {axis}, got shape {shape}; leave out empty bags"
            )
        if mask is None:
            return axis
        marks = tuple(mask.shape)
        fits = all(None in pair or pair[0] == pair[1] for pair in zip(marks, shape, strict=False))
        if not 2 <= len(marks) < len(shape) or not fits:
            raise ArgumentError(
                f"mask: expected {shape[:2]} for an input of shape {shape}, one truth value per frame (batch, time), "
                f"got {marks}"
            )
        if axis == 0:
            raise ArgumentError(
                f"mask: expected none, since {type(self).__name__}(axis={self.axis}) pools over the batch, got shape "
                f"{marks}, which marks frames within each bag; to pool the frames use axis=1"
            )
        return axis


@keras.saving.register_keras_serializable(package="earmark")
class AutoPool1D(_Pool1D):
    """Auto-pooling with one trainable alpha per class.

    P = sum_t p_t exp(alpha p_t) / sum_t exp(alpha p_t), Eq. (8): the mean at alpha = 0, soft-max pooling at 1, towards
    the maximum and the minimum as alpha goes to plus and minus infinity.

    Parameters
    ----------
    axis
        The axis to pool: 1 for (batch, time, classes). The authors' default, 0, pools over the batch.
    kernel_initializer
        Where alpha starts. The paper recommends 'zeros' (mean pooling) or 'ones' (soft-max pooling).
    kernel_constraint
        CAP, Sec. III.E: `keras.constraints.max_norm(limit, axis=0)` keeps abs(alpha) within the limit, ln(m - 1) for m
        frames by Eq. (13); `keras.constraints.non_neg()` keeps alpha from becoming negative.
    kernel_regularizer
        RAP, Sec. III.F: `keras.regularizers.l2(penalty)` adds penalty * sum(alpha ** 2) to the loss.
    **kwargs
        Passed on to `keras.Layer`. `input_dim=n` works in the first layer of a `Sequential`: the input is
        (batch, time, n).

    Attributes
    ----------
    kernel : (1, classes)
        alpha.

    Examples
    --------
    >>> import numpy as np
    >>> p = np.array([[[0.2], [0.8], [np.nan]]])               # two real frames, one of padding
    >>> mask = np.array([[True, True, False]])
    >>> mean = AutoPool1D(axis=1)(p, mask=mask)                # alpha starts at 0
    >>> soft = AutoPool1D(axis=1, kernel_initializer="ones")(p, mask=mask)
    >>> for P in (mean, soft):
    ...     print(keras.ops.convert_to_numpy(P).round(3))
    [[0.5]]
    [[0.587]]
    """

    def __init__(
        self,
        axis: int = 0,
        kernel_initializer: Any = "zeros",
        kernel_constraint: Any = None,
        kernel_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        if "input_shape" not in kwargs and "input_dim" in kwargs:
            # Keras 3 would read (batch, n), which has no frames to pool.
            kwargs["input_shape"] = (None, kwargs.pop("input_dim"))
        super().__init__(axis=axis, **kwargs)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.input_spec = keras.InputSpec(min_ndim=3)

    def build(self, input_shape: Shape) -> None:
        """Create alpha, one per class."""
        _resolve(self.axis, input_shape)
        classes = input_shape[-1]
        if classes is None:
            raise ArgumentError(
                f"input: expected a known number of classes on the last axis, got shape {tuple(input_shape)}"
            )
        self.kernel = self.add_weight(
            shape=(1, classes),
            initializer=self.kernel_initializer,
            name="kernel",
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
            autocast=False,  # a mixed policy would round alpha to half precision
        )
        self.input_spec = keras.InputSpec(min_ndim=3, axes={-1: classes})

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, for saving."""
        return {
            **super().get_config(),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
        }

    def _alpha(self) -> Tensor:
        return keras.ops.cast(self.kernel, keras.backend.result_type(self.compute_dtype, "float32"))


@keras.saving.register_keras_serializable(package="earmark")
class LinearAutoPool1D(AutoPool1D):
    """Adaptive linear soft-max with one trainable alpha >= 0 per class; the input is probabilities.

    P = sum_t p_t w_t / sum_t w_t, w_t = (exp(alpha p_t) - 1) / alpha: linear soft-max at alpha = 0, towards the maximum
    as alpha grows. Frames at 0 have no weight. `earmark.pooling.AdaptiveLinearPool` describes the operator.

    Parameters are as in `AutoPool1D`, but by default alpha is kept from becoming negative. For `linear-cap`, use
    `keras.constraints.max_norm(limit, axis=0)`, which keeps abs(alpha) within a limit, with that of
    `earmark.pooling.sufficient_share_to_alpha`. For `linear-rap`, use `keras.regularizers.l2(penalty)`.

    Examples
    --------
    >>> import numpy as np
    >>> linear = LinearAutoPool1D(axis=1)(np.array([[[0.2], [0.8]]]))       # alpha starts at 0
    >>> print(keras.ops.convert_to_numpy(linear).round(3))
    [[0.68]]
    """

    def __init__(
        self,
        axis: int = 0,
        kernel_initializer: Any = "zeros",
        kernel_constraint: Any = "non_neg",
        kernel_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(axis, kernel_initializer, kernel_constraint, kernel_regularizer, **kwargs)

    def _logits(self, x: Tensor) -> Tensor:
        # As in earmark.pooling: ln p + ln((e^z - 1) / z), z = alpha p, with a series near z = 0.
        ops = keras.ops
        p = x + ops.stop_gradient(ops.maximum(x, FLOOR) - x)
        z = self._alpha() * p
        is_small = ops.abs(z) < 0.04
        small, large = ops.where(is_small, z, 0.0), ops.where(is_small, 1.0, z)
        series = small / 2 + small**2 / 24
        size = ops.abs(large)
        exact = ops.maximum(large, 0.0) + ops.log(-ops.expm1(-size) / size)
        return ops.log(p) + ops.where(is_small, series, exact)


@keras.saving.register_keras_serializable(package="earmark")
class SoftMaxPool1D(_Pool1D):
    """Soft-max pooling: auto-pooling with alpha fixed at 1, nothing to train.

    P = sum_t p_t exp(p_t) / sum_t exp(p_t), Eq. (6). With p in [0, 1] no frame of m weighs more than e / (e + m - 1),
    Eq. (7), so in long bags it is nearly the mean.

    Parameters are as in `AutoPool1D`.

    Examples
    --------
    >>> import numpy as np
    >>> P = SoftMaxPool1D(axis=1)(np.array([[[0.2], [0.8]]]))
    >>> print(keras.ops.convert_to_numpy(P).round(3))
    [[0.587]]
    """

    def _alpha(self) -> float:
        return 1.0


def _resolve(axis: int, shape: Shape) -> int:
    """`axis` counted from the front."""
    if not -len(shape) <= axis < len(shape):
        raise ArgumentError(f"axis: expected an axis of an input of shape {tuple(shape)}, got {axis}")
    return axis % len(shape)
