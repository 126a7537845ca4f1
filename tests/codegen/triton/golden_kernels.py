"""All groups, emitted."""

from functools import partial

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

from hybridc.runtime.kernels.rowwise import (
    Rows,
    add_columns,
    at_least,
    at_most,
    e4m3_factor,
    form,
    int8_factor,
    load_pairs,
    magnitude,
    store_pairs,
    tanh,
    tile,
    to_e4m3,
    to_e4m3_blocks,
    to_int8,
    vector,
    within_groups,
)
from hybridc.runtime.kernels.stored import Stored


@triton.jit
def add_layernorm_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, weight_ptr, bias_ptr, h_ptr, h_stride, y_ptr, y_stride,
    center_ptr, rstd_ptr, rows, WIDTH: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """h = x + residual; y = (h - mean) / sqrt(variance + eps) · weight + bias."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    h_row = h_ptr + row * h_stride
    y_row = y_ptr + row * y_stride
    center = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        center += tl.sum(h, 1, keep_dims=True)
    center = center / WIDTH
    variance = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        apart = h - center
        variance += tl.sum(tl.where(inside, apart * apart, 0.0), 1, keep_dims=True)
    variance = variance / WIDTH
    rstd = tl.rsqrt(variance + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + col, mask=there, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        apart = h - center
        y = rstd * weight * apart + bias
        tl.store(h_row + col, h, mask=inside)
        tl.store(y_row + col, y, mask=inside)
    tl.store(center_ptr + row, center, mask=live)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def add_layernorm_backward(
    weight_ptr, h_ptr, h_stride, center_ptr, rstd_ptr, dh_ptr, dh_stride, dy_ptr, dy_stride, dx_ptr, dx_stride,
    dweight_ptr, dbias_ptr, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of add_layernorm."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    dbias_sums = dbias_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dbias = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        h_row = h_ptr + row * h_stride
        dh_row = dh_ptr + row * dh_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        center = tl.load(center_ptr + row, mask=live, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        dcenter = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = h - center
            drstd += tl.sum(apart * t1, 1, keep_dims=True)
            dcenter += tl.sum(t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dh = tl.load(dh_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = h - center
            dx = dh + rstd * t1 - drstd / WIDTH * rstd * rstd * rstd * apart - dcenter / WIDTH * rstd
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * apart * dy, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
            dbias_tile = tl.sum(dy, 0, keep_dims=True)
            dbias = add_columns(dbias, dbias_tile, dbias_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)
        tl.store(dbias_sums + col, dbias, mask=col < WIDTH)


class AddLayernorm(torch.autograd.Function):
    """h = x + residual; y = (h - mean) / sqrt(variance + eps) · weight + bias."""

    @staticmethod
    def forward(ctx, x, residual, weight, bias, eps):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        h = rows.empty(width)
        y = rows.empty(width)
        center = rows.empty(1, torch.float32)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        add_layernorm_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), vector(weight, width),
            vector(bias, width), h, width, y, width, center, rstd, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(weight, h, center, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return h, y

    @staticmethod
    @once_differentiable
    def backward(ctx, dh, dy):
        weight, h, center, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        h_rows = rows.matrix(h, width)
        dh_rows = rows.matrix(dh, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=4096, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        dbias = rows.zeros(fit.grid[0], width)
        add_layernorm_backward[fit.grid](
            vector(weight, width), h_rows, h_rows.stride(0), center, rstd, dh_rows, dh_rows.stride(0), dy_rows,
            dy_rows.stride(0), dx, width, dweight, dbias, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dx, dweight.sum(0), dbias.sum(0), None


def add_layernorm(x, residual, weight, bias, *, eps):
    """h = x + residual; y = (h - mean) / sqrt(variance + eps) · weight + bias.

    x [..., width], residual [..., width], weight [width], bias [width] -> h [..., width], y [..., width].
    """
    return AddLayernorm.apply(x, residual, weight, bias, eps)


@triton.jit
def add_layernorm_without_bias_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, weight_ptr, h_ptr, h_stride, y_ptr, y_stride, center_ptr,
    rstd_ptr, rows, WIDTH: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """h = x + residual; y = (h - mean) / sqrt(variance + eps) · weight."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    h_row = h_ptr + row * h_stride
    y_row = y_ptr + row * y_stride
    center = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        center += tl.sum(h, 1, keep_dims=True)
    center = center / WIDTH
    variance = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        apart = h - center
        variance += tl.sum(tl.where(inside, apart * apart, 0.0), 1, keep_dims=True)
    variance = variance / WIDTH
    rstd = tl.rsqrt(variance + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        apart = h - center
        y = rstd * weight * apart
        tl.store(h_row + col, h, mask=inside)
        tl.store(y_row + col, y, mask=inside)
    tl.store(center_ptr + row, center, mask=live)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def add_layernorm_without_bias_backward(
    weight_ptr, h_ptr, h_stride, center_ptr, rstd_ptr, dh_ptr, dh_stride, dy_ptr, dy_stride, dx_ptr, dx_stride,
    dweight_ptr, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of add_layernorm_without_bias."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        h_row = h_ptr + row * h_stride
        dh_row = dh_ptr + row * dh_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        center = tl.load(center_ptr + row, mask=live, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        dcenter = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = h - center
            drstd += tl.sum(apart * t1, 1, keep_dims=True)
            dcenter += tl.sum(t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dh = tl.load(dh_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = h - center
            dx = dh + rstd * t1 - drstd / WIDTH * rstd * rstd * rstd * apart - dcenter / WIDTH * rstd
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * apart * dy, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class AddLayernormWithoutBias(torch.autograd.Function):
    """h = x + residual; y = (h - mean) / sqrt(variance + eps) · weight."""

    @staticmethod
    def forward(ctx, x, residual, weight, eps):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        h = rows.empty(width)
        y = rows.empty(width)
        center = rows.empty(1, torch.float32)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        add_layernorm_without_bias_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), vector(weight, width), h, width, y,
            width, center, rstd, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(weight, h, center, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return h, y

    @staticmethod
    @once_differentiable
    def backward(ctx, dh, dy):
        weight, h, center, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        h_rows = rows.matrix(h, width)
        dh_rows = rows.matrix(dh, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        add_layernorm_without_bias_backward[fit.grid](
            vector(weight, width), h_rows, h_rows.stride(0), center, rstd, dh_rows, dh_rows.stride(0), dy_rows,
            dy_rows.stride(0), dx, width, dweight, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dx, dweight.sum(0), None


def add_layernorm_without_bias(x, residual, weight, *, eps):
    """h = x + residual; y = (h - mean) / sqrt(variance + eps) · weight.

    x [..., width], residual [..., width], weight [width] -> h [..., width], y [..., width].
    """
    return AddLayernormWithoutBias.apply(x, residual, weight, eps)


@triton.jit
def add_plain_rmsnorm_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, h_ptr, h_stride, y_ptr, y_stride, rstd_ptr, rows,
    WIDTH: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """h = x + residual; y = h / sqrt(mean(h²) + eps)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    h_row = h_ptr + row * h_stride
    y_row = y_ptr + row * y_stride
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        square += tl.sum(h * h, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        y = rstd * h
        tl.store(h_row + col, h, mask=inside)
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def add_plain_rmsnorm_backward(
    h_ptr, h_stride, rstd_ptr, dh_ptr, dh_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of add_plain_rmsnorm."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    h_row = h_ptr + row * h_stride
    dh_row = dh_ptr + row * dh_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
    drstd = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        drstd += tl.sum(dy * h, 1, keep_dims=True)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
        dh = tl.load(dh_row + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        dx = dh + rstd * dy - drstd / WIDTH * rstd * rstd * rstd * h
        tl.store(dx_row + col, dx, mask=inside)


class AddPlainRmsnorm(torch.autograd.Function):
    """h = x + residual; y = h / sqrt(mean(h²) + eps)."""

    @staticmethod
    def forward(ctx, x, residual, eps):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        h = rows.empty(width)
        y = rows.empty(width)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        add_plain_rmsnorm_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), h, width, y, width, rstd, rows.count,
            WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(h, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return h, y

    @staticmethod
    @once_differentiable
    def backward(ctx, dh, dy):
        h, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        h_rows = rows.matrix(h, width)
        dh_rows = rows.matrix(dh, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192)
        add_plain_rmsnorm_backward[fit.grid](
            h_rows, h_rows.stride(0), rstd, dh_rows, dh_rows.stride(0), dy_rows, dy_rows.stride(0), dx, width,
            rows.count, WIDTH=width, **fit.options,
        )
        return dx, dx, None


def add_plain_rmsnorm(x, residual, *, eps):
    """h = x + residual; y = h / sqrt(mean(h²) + eps).

    x [..., width], residual [..., width] -> h [..., width], y [..., width].
    """
    return AddPlainRmsnorm.apply(x, residual, eps)


@triton.jit
def add_rmsnorm_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, weight_ptr, h_ptr, h_stride, y_ptr, y_stride, rstd_ptr, rows,
    WIDTH: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """h = x + residual; y = h / sqrt(mean(h²) + eps) · weight."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    h_row = h_ptr + row * h_stride
    y_row = y_ptr + row * y_stride
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        square += tl.sum(h * h, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        y = rstd * weight * h
        tl.store(h_row + col, h, mask=inside)
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def add_rmsnorm_backward(
    weight_ptr, h_ptr, h_stride, rstd_ptr, dh_ptr, dh_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr,
    rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of add_rmsnorm."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        h_row = h_ptr + row * h_stride
        dh_row = dh_ptr + row * dh_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            drstd += tl.sum(h * t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dh = tl.load(dh_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            dx = dh + rstd * t1 - drstd / WIDTH * rstd * rstd * rstd * h
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * dy * h, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class AddRmsnorm(torch.autograd.Function):
    """h = x + residual; y = h / sqrt(mean(h²) + eps) · weight."""

    @staticmethod
    def forward(ctx, x, residual, weight, eps):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        h = rows.empty(width)
        y = rows.empty(width)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        add_rmsnorm_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), vector(weight, width), h, width, y,
            width, rstd, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(weight, h, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return h, y

    @staticmethod
    @once_differentiable
    def backward(ctx, dh, dy):
        weight, h, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        h_rows = rows.matrix(h, width)
        dh_rows = rows.matrix(dh, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        add_rmsnorm_backward[fit.grid](
            vector(weight, width), h_rows, h_rows.stride(0), rstd, dh_rows, dh_rows.stride(0), dy_rows,
            dy_rows.stride(0), dx, width, dweight, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dx, dweight.sum(0), None


def add_rmsnorm(x, residual, weight, *, eps):
    """h = x + residual; y = h / sqrt(mean(h²) + eps) · weight.

    x [..., width], residual [..., width], weight [width] -> h [..., width], y [..., width].
    """
    return AddRmsnorm.apply(x, residual, weight, eps)


@triton.jit
def add_rmsnorm_e4m3_block_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, weight_ptr, h_ptr, h_stride, y_ptr, y_stride, y_scale_ptr,
    rstd_ptr, rows, WIDTH: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """h = x + residual; y = h / sqrt(mean(h²) + eps) · weight, in E4M3 with a factor for each 128 columns."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    h_row = h_ptr + row * h_stride
    y_row = y_ptr + row * y_stride
    y_scale_row = y_scale_ptr + row * tl.cdiv(WIDTH, 128)
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        square += tl.sum(h * h, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        y = rstd * weight * h
        tl.store(h_row + col, h, mask=inside)
        quantized, scale = to_e4m3_blocks(y, inside, ROWS, BLOCK)
        tl.store(y_row + col, quantized, mask=inside)
        block = start // 128 + tl.arange(0, BLOCK // 128)[None, :]
        tl.store(y_scale_row + block, scale, mask=live & (block < tl.cdiv(WIDTH, 128)))
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def add_rmsnorm_e4m3_block_backward(
    weight_ptr, h_ptr, h_stride, rstd_ptr, dh_ptr, dh_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr,
    rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of add_rmsnorm_e4m3_block."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        h_row = h_ptr + row * h_stride
        dh_row = dh_ptr + row * dh_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            drstd += tl.sum(h * t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dh = tl.load(dh_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            dx = dh + rstd * t1 - drstd / WIDTH * rstd * rstd * rstd * h
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * dy * h, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class AddRmsnormE4m3Block(torch.autograd.Function):
    """h = x + residual; y = h / sqrt(mean(h²) + eps) · weight, in E4M3 with a factor for each 128 columns."""

    @staticmethod
    def forward(ctx, x, residual, weight, eps):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        h = rows.empty(width)
        y = rows.empty(width, torch.float8_e4m3fn)
        y_scale = rows.empty(triton.cdiv(width, 128), torch.float32)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192, least=128)
        add_rmsnorm_e4m3_block_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), vector(weight, width), h, width, y,
            width, y_scale, rstd, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(weight, h, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(y, y_scale)
        return h, y, y_scale, rows.carrier(width)

    @staticmethod
    @once_differentiable
    def backward(ctx, dh, y_unused, y_scale_unused, dy):
        weight, h, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        h_rows = rows.matrix(h, width)
        dh_rows = rows.matrix(dh, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        add_rmsnorm_e4m3_block_backward[fit.grid](
            vector(weight, width), h_rows, h_rows.stride(0), rstd, dh_rows, dh_rows.stride(0), dy_rows,
            dy_rows.stride(0), dx, width, dweight, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dx, dweight.sum(0), None


def add_rmsnorm_e4m3_block(x, residual, weight, *, eps):
    """h = x + residual; y = h / sqrt(mean(h²) + eps) · weight, in E4M3 with a factor for each 128 columns.

    x [..., width], residual [..., width], weight [width] -> h [..., width], y [..., width] as it is stored.
    """
    h, y, y_scale, dy = AddRmsnormE4m3Block.apply(x, residual, weight, eps)
    return h, Stored(y, y_scale, dy, partial(rmsnorm, h, weight, eps=eps))


@triton.jit
def add_rmsnorm_e4m3_row_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, weight_ptr, h_ptr, h_stride, y_ptr, y_stride, y_scale_ptr,
    rstd_ptr, rows, WIDTH: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """h = x + residual; y = h / sqrt(mean(h²) + eps) · weight, in E4M3 with a factor for each row."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    h_row = h_ptr + row * h_stride
    y_row = y_ptr + row * y_stride
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        square += tl.sum(h * h, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    y_amax = tl.full([ROWS, 1], float("-inf"), tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        y = rstd * weight * h
        y_amax = tl.maximum(y_amax, tl.max(tl.where(inside, magnitude(y), float("-inf")), 1, keep_dims=True))
    y_scale = e4m3_factor(y_amax)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        y = rstd * weight * h
        tl.store(h_row + col, h, mask=inside)
        tl.store(y_row + col, to_e4m3(y, y_scale), mask=inside)
    tl.store(y_scale_ptr + row, y_scale, mask=live)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def add_rmsnorm_e4m3_row_backward(
    weight_ptr, h_ptr, h_stride, rstd_ptr, dh_ptr, dh_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr,
    rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of add_rmsnorm_e4m3_row."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        h_row = h_ptr + row * h_stride
        dh_row = dh_ptr + row * dh_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            drstd += tl.sum(h * t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dh = tl.load(dh_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            dx = dh + rstd * t1 - drstd / WIDTH * rstd * rstd * rstd * h
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * dy * h, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class AddRmsnormE4m3Row(torch.autograd.Function):
    """h = x + residual; y = h / sqrt(mean(h²) + eps) · weight, in E4M3 with a factor for each row."""

    @staticmethod
    def forward(ctx, x, residual, weight, eps):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        h = rows.empty(width)
        y = rows.empty(width, torch.float8_e4m3fn)
        y_scale = rows.empty(1, torch.float32)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        add_rmsnorm_e4m3_row_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), vector(weight, width), h, width, y,
            width, y_scale, rstd, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(weight, h, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(y, y_scale)
        return h, y, y_scale, rows.carrier(width)

    @staticmethod
    @once_differentiable
    def backward(ctx, dh, y_unused, y_scale_unused, dy):
        weight, h, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        h_rows = rows.matrix(h, width)
        dh_rows = rows.matrix(dh, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        add_rmsnorm_e4m3_row_backward[fit.grid](
            vector(weight, width), h_rows, h_rows.stride(0), rstd, dh_rows, dh_rows.stride(0), dy_rows,
            dy_rows.stride(0), dx, width, dweight, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dx, dweight.sum(0), None


def add_rmsnorm_e4m3_row(x, residual, weight, *, eps):
    """h = x + residual; y = h / sqrt(mean(h²) + eps) · weight, in E4M3 with a factor for each row.

    x [..., width], residual [..., width], weight [width] -> h [..., width], y [..., width] as it is stored.
    """
    h, y, y_scale, dy = AddRmsnormE4m3Row.apply(x, residual, weight, eps)
    return h, Stored(y, y_scale, dy, partial(rmsnorm, h, weight, eps=eps))


@triton.jit
def add_rmsnorm_int8_row_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, weight_ptr, h_ptr, h_stride, y_ptr, y_stride, y_scale_ptr,
    rstd_ptr, rows, WIDTH: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """h = x + residual; y = h / sqrt(mean(h²) + eps) · weight, in 8 bits with a factor for each row."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    h_row = h_ptr + row * h_stride
    y_row = y_ptr + row * y_stride
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        square += tl.sum(h * h, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    y_amax = tl.full([ROWS, 1], float("-inf"), tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        y = rstd * weight * h
        y_amax = tl.maximum(y_amax, tl.max(tl.where(inside, magnitude(y), float("-inf")), 1, keep_dims=True))
    y_scale = int8_factor(y_amax)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        y = rstd * weight * h
        tl.store(h_row + col, h, mask=inside)
        tl.store(y_row + col, to_int8(y, y_scale), mask=inside)
    tl.store(y_scale_ptr + row, y_scale, mask=live)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def add_rmsnorm_int8_row_backward(
    weight_ptr, h_ptr, h_stride, rstd_ptr, dh_ptr, dh_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr,
    rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of add_rmsnorm_int8_row."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        h_row = h_ptr + row * h_stride
        dh_row = dh_ptr + row * dh_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            drstd += tl.sum(h * t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dh = tl.load(dh_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            dx = dh + rstd * t1 - drstd / WIDTH * rstd * rstd * rstd * h
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * dy * h, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class AddRmsnormInt8Row(torch.autograd.Function):
    """h = x + residual; y = h / sqrt(mean(h²) + eps) · weight, in 8 bits with a factor for each row."""

    @staticmethod
    def forward(ctx, x, residual, weight, eps):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        h = rows.empty(width)
        y = rows.empty(width, torch.int8)
        y_scale = rows.empty(1, torch.float32)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        add_rmsnorm_int8_row_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), vector(weight, width), h, width, y,
            width, y_scale, rstd, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(weight, h, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(y, y_scale)
        return h, y, y_scale, rows.carrier(width)

    @staticmethod
    @once_differentiable
    def backward(ctx, dh, y_unused, y_scale_unused, dy):
        weight, h, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        h_rows = rows.matrix(h, width)
        dh_rows = rows.matrix(dh, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        add_rmsnorm_int8_row_backward[fit.grid](
            vector(weight, width), h_rows, h_rows.stride(0), rstd, dh_rows, dh_rows.stride(0), dy_rows,
            dy_rows.stride(0), dx, width, dweight, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dx, dweight.sum(0), None


def add_rmsnorm_int8_row(x, residual, weight, *, eps):
    """h = x + residual; y = h / sqrt(mean(h²) + eps) · weight, in 8 bits with a factor for each row.

    x [..., width], residual [..., width], weight [width] -> h [..., width], y [..., width] as it is stored.
    """
    h, y, y_scale, dy = AddRmsnormInt8Row.apply(x, residual, weight, eps)
    return h, Stored(y, y_scale, dy, partial(rmsnorm, h, weight, eps=eps))


@triton.jit
def add_zero_centered_rmsnorm_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, weight_ptr, h_ptr, h_stride, y_ptr, y_stride, rstd_ptr, rows,
    WIDTH: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """h = x + residual; y = h / sqrt(mean(h²) + eps) · (1 + weight)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    h_row = h_ptr + row * h_stride
    y_row = y_ptr + row * y_stride
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        square += tl.sum(h * h, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        h = (residual + x).to(h_ptr.dtype.element_ty).to(tl.float32)
        y = rstd * (weight + 1) * h
        tl.store(h_row + col, h, mask=inside)
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def add_zero_centered_rmsnorm_backward(
    weight_ptr, h_ptr, h_stride, rstd_ptr, dh_ptr, dh_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr,
    rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of add_zero_centered_rmsnorm."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        h_row = h_ptr + row * h_stride
        dh_row = dh_ptr + row * dh_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = (weight + 1) * dy
            drstd += tl.sum(h * t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dh = tl.load(dh_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = (weight + 1) * dy
            dx = dh + rstd * t1 - drstd / WIDTH * rstd * rstd * rstd * h
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * dy * h, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class AddZeroCenteredRmsnorm(torch.autograd.Function):
    """h = x + residual; y = h / sqrt(mean(h²) + eps) · (1 + weight)."""

    @staticmethod
    def forward(ctx, x, residual, weight, eps):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        h = rows.empty(width)
        y = rows.empty(width)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        add_zero_centered_rmsnorm_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), vector(weight, width), h, width, y,
            width, rstd, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(weight, h, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return h, y

    @staticmethod
    @once_differentiable
    def backward(ctx, dh, dy):
        weight, h, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        h_rows = rows.matrix(h, width)
        dh_rows = rows.matrix(dh, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        add_zero_centered_rmsnorm_backward[fit.grid](
            vector(weight, width), h_rows, h_rows.stride(0), rstd, dh_rows, dh_rows.stride(0), dy_rows,
            dy_rows.stride(0), dx, width, dweight, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dx, dweight.sum(0), None


def add_zero_centered_rmsnorm(x, residual, weight, *, eps):
    """h = x + residual; y = h / sqrt(mean(h²) + eps) · (1 + weight).

    x [..., width], residual [..., width], weight [width] -> h [..., width], y [..., width].
    """
    return AddZeroCenteredRmsnorm.apply(x, residual, weight, eps)


@triton.jit
def clamped_swiglu_forward(
    gate_up_ptr, gate_up_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, beta: tl.constexpr,
    limit: tl.constexpr, offset: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = g sigmoid(beta g) · (u + offset), with g = min(gate, limit) and u = up within ±limit, the gate first."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
    g = at_most(gate, limit)
    u = at_least(at_most(up, limit), -limit)
    y = (u + offset) * g * tl.sigmoid(beta * g)
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def clamped_swiglu_backward(
    gate_up_ptr, gate_up_stride, dy_ptr, dy_stride, dgate_up_ptr, dgate_up_stride, rows, WIDTH: tl.constexpr,
    beta: tl.constexpr, limit: tl.constexpr, offset: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of clamped_swiglu."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    dy_row = dy_ptr + row * dy_stride
    dgate_up_row = dgate_up_ptr + row * dgate_up_stride
    inside = live & there
    gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    t1 = at_most(up, limit)
    g = at_most(gate, limit)
    t2 = beta * g
    sigmoid_t2 = tl.sigmoid(t2)
    t3 = dy * sigmoid_t2
    u = at_least(t1, -limit)
    dgate = ((1 - sigmoid_t2) * t2 + 1) * (u + offset) * t3 * tl.where(gate <= limit, 1.0, 0.0)
    dup = g * t3 * tl.where(t1 >= -limit, 1.0, 0.0) * tl.where(up <= limit, 1.0, 0.0)
    tl.store(dgate_up_row + col, dgate, mask=inside)
    tl.store(dgate_up_row + WIDTH + col, dup, mask=inside)


class ClampedSwiglu(torch.autograd.Function):
    """y = g sigmoid(beta g) · (u + offset), with g = min(gate, limit) and u = up within ±limit, the gate first."""

    @staticmethod
    def forward(ctx, gate_up, beta, limit, offset):
        rows = Rows.of(gate_up)
        width = gate_up.shape[-1] // 2
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        clamped_swiglu_forward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), y, width, rows.count, WIDTH=width, beta=beta, limit=limit,
            offset=offset, **fit.options,
        )
        ctx.save_for_backward(gate_up)
        ctx.rows, ctx.width, ctx.beta, ctx.limit, ctx.offset = rows, width, beta, limit, offset
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate_up, = ctx.saved_tensors
        rows, width, beta, limit, offset = ctx.rows, ctx.width, ctx.beta, ctx.limit, ctx.offset
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        dy_rows = rows.matrix(dy, width)
        dgate_up = rows.empty(2 * width)
        fit = tile(rows.count, width, columns=True)
        clamped_swiglu_backward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), dy_rows, dy_rows.stride(0), dgate_up, 2 * width, rows.count,
            WIDTH=width, beta=beta, limit=limit, offset=offset, **fit.options,
        )
        return dgate_up, None, None, None


def clamped_swiglu(gate_up, *, beta, limit, offset):
    """y = g sigmoid(beta g) · (u + offset), with g = min(gate, limit) and u = up within ±limit, the gate first.

    gate_up [..., 2 width] -> y [..., width].
    """
    return ClampedSwiglu.apply(gate_up, beta, limit, offset)


@triton.jit
def clamped_swiglu_pairs_forward(
    gate_up_ptr, gate_up_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, beta: tl.constexpr,
    limit: tl.constexpr, offset: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = g sigmoid(beta g) · (u + offset), with g = min(gate, limit) and u = up within ±limit, side by side."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    gate, up = load_pairs(gate_up_row, tl.program_id(1) * BLOCK, WIDTH, live, ROWS, BLOCK)
    g = at_most(gate, limit)
    u = at_least(at_most(up, limit), -limit)
    y = (u + offset) * g * tl.sigmoid(beta * g)
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def clamped_swiglu_pairs_backward(
    gate_up_ptr, gate_up_stride, dy_ptr, dy_stride, dgate_up_ptr, dgate_up_stride, rows, WIDTH: tl.constexpr,
    beta: tl.constexpr, limit: tl.constexpr, offset: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of clamped_swiglu_pairs."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    dy_row = dy_ptr + row * dy_stride
    dgate_up_row = dgate_up_ptr + row * dgate_up_stride
    inside = live & there
    gate, up = load_pairs(gate_up_row, tl.program_id(1) * BLOCK, WIDTH, live, ROWS, BLOCK)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    t1 = at_most(up, limit)
    g = at_most(gate, limit)
    t2 = beta * g
    sigmoid_t2 = tl.sigmoid(t2)
    t3 = dy * sigmoid_t2
    u = at_least(t1, -limit)
    dgate = ((1 - sigmoid_t2) * t2 + 1) * (u + offset) * t3 * tl.where(gate <= limit, 1.0, 0.0)
    dup = g * t3 * tl.where(t1 >= -limit, 1.0, 0.0) * tl.where(up <= limit, 1.0, 0.0)
    store_pairs(dgate_up_row, dgate, dup, tl.program_id(1) * BLOCK, WIDTH, live, ROWS, BLOCK)


class ClampedSwigluPairs(torch.autograd.Function):
    """y = g sigmoid(beta g) · (u + offset), with g = min(gate, limit) and u = up within ±limit, side by side."""

    @staticmethod
    def forward(ctx, gate_up, beta, limit, offset):
        rows = Rows.of(gate_up)
        width = gate_up.shape[-1] // 2
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        clamped_swiglu_pairs_forward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), y, width, rows.count, WIDTH=width, beta=beta, limit=limit,
            offset=offset, **fit.options,
        )
        ctx.save_for_backward(gate_up)
        ctx.rows, ctx.width, ctx.beta, ctx.limit, ctx.offset = rows, width, beta, limit, offset
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate_up, = ctx.saved_tensors
        rows, width, beta, limit, offset = ctx.rows, ctx.width, ctx.beta, ctx.limit, ctx.offset
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        dy_rows = rows.matrix(dy, width)
        dgate_up = rows.empty(2 * width)
        fit = tile(rows.count, width, columns=True)
        clamped_swiglu_pairs_backward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), dy_rows, dy_rows.stride(0), dgate_up, 2 * width, rows.count,
            WIDTH=width, beta=beta, limit=limit, offset=offset, **fit.options,
        )
        return dgate_up, None, None, None


def clamped_swiglu_pairs(gate_up, *, beta, limit, offset):
    """y = g sigmoid(beta g) · (u + offset), with g = min(gate, limit) and u = up within ±limit, side by side.

    gate_up [..., 2 width] -> y [..., width].
    """
    return ClampedSwigluPairs.apply(gate_up, beta, limit, offset)


@triton.jit
def dequantize_block_forward(
    codes_ptr, codes_stride, factor_ptr, factor_stride, scale_ptr, y_ptr, y_stride, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = codes · factor · scale, a factor for each row and 128 columns."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    codes_row = codes_ptr + row * codes_stride
    factor_row = factor_ptr + row * factor_stride
    y_row = y_ptr + row * y_stride
    scale = tl.load(scale_ptr + row, mask=live, other=0.0).to(tl.float32)
    inside = live & there
    codes = tl.load(codes_row + col, mask=inside, other=0.0).to(tl.float32)
    factor = tl.load(factor_row + col // 128, mask=inside, other=0.0).to(tl.float32)
    y = scale * codes * factor
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def dequantize_block_backward(
    codes_ptr, codes_stride, factor_ptr, factor_stride, dy_ptr, dy_stride, dscale_ptr, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of dequantize_block."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    codes_row = codes_ptr + row * codes_stride
    factor_row = factor_ptr + row * factor_stride
    dy_row = dy_ptr + row * dy_stride
    dscale = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        codes = tl.load(codes_row + col, mask=inside, other=0.0).to(tl.float32)
        factor = tl.load(factor_row + col // 128, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        dscale += tl.sum(codes * dy * factor, 1, keep_dims=True)
    tl.store(dscale_ptr + row, dscale, mask=live)


class DequantizeBlock(torch.autograd.Function):
    """y = codes · factor · scale, a factor for each row and 128 columns."""

    @staticmethod
    def forward(ctx, codes, factor, scale):
        rows = Rows.of(codes, like=[scale])
        width = codes.shape[-1]
        codes_rows = rows.matrix(codes, width)
        factor_rows = rows.matrix(factor, triton.cdiv(width, 128))
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        dequantize_block_forward[fit.grid](
            codes_rows, codes_rows.stride(0), factor_rows, factor_rows.stride(0), rows.numbers(scale, 1), y, width,
            rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(codes, factor)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        codes, factor = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        codes_rows = rows.matrix(codes, width)
        factor_rows = rows.matrix(factor, triton.cdiv(width, 128))
        dy_rows = rows.matrix(dy, width)
        dscale = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=16384)
        dequantize_block_backward[fit.grid](
            codes_rows, codes_rows.stride(0), factor_rows, factor_rows.stride(0), dy_rows, dy_rows.stride(0),
            dscale, rows.count, WIDTH=width, **fit.options,
        )
        return None, None, dscale


def dequantize_block(codes, factor, scale):
    """y = codes · factor · scale, a factor for each row and 128 columns.

    codes [..., width], factor [..., ceil(width / 128)], scale [..., 1] -> y [..., width].
    """
    return DequantizeBlock.apply(codes, factor, scale)


@triton.jit
def dequantize_row_forward(
    codes_ptr, codes_stride, scale_ptr, weight_ptr, y_ptr, y_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = codes · scale · weight, a scale for each row and a weight for each column."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    codes_row = codes_ptr + row * codes_stride
    y_row = y_ptr + row * y_stride
    scale = tl.load(scale_ptr + row, mask=live, other=0.0).to(tl.float32)
    inside = live & there
    codes = tl.load(codes_row + col, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
    y = scale * weight * codes
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def dequantize_row_backward(
    codes_ptr, codes_stride, scale_ptr, weight_ptr, dy_ptr, dy_stride, dscale_ptr, dweight_ptr, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of dequantize_row."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        codes_row = codes_ptr + row * codes_stride
        dy_row = dy_ptr + row * dy_stride
        scale = tl.load(scale_ptr + row, mask=live, other=0.0).to(tl.float32)
        dscale = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            codes = tl.load(codes_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = codes * dy
            dscale += tl.sum(weight * t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            codes = tl.load(codes_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = codes * dy
            dweight_tile = tl.sum(scale * t1, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
        tl.store(dscale_ptr + row, dscale, mask=live)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class DequantizeRow(torch.autograd.Function):
    """y = codes · scale · weight, a scale for each row and a weight for each column."""

    @staticmethod
    def forward(ctx, codes, scale, weight):
        rows = Rows.of(codes, like=[weight])
        width = codes.shape[-1]
        codes_rows = rows.matrix(codes, width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        dequantize_row_forward[fit.grid](
            codes_rows, codes_rows.stride(0), rows.numbers(scale, 1), vector(weight, width), y, width, rows.count,
            WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(codes, scale, weight)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        codes, scale, weight = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        codes_rows = rows.matrix(codes, width)
        dy_rows = rows.matrix(dy, width)
        dscale = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        dequantize_row_backward[fit.grid](
            codes_rows, codes_rows.stride(0), rows.numbers(scale, 1), vector(weight, width), dy_rows,
            dy_rows.stride(0), dscale, dweight, rows.count, WIDTH=width, **fit.options,
        )
        return None, dscale, dweight.sum(0)


def dequantize_row(codes, scale, weight):
    """y = codes · scale · weight, a scale for each row and a weight for each column.

    codes [..., width], scale [..., 1], weight [width] -> y [..., width].
    """
    return DequantizeRow.apply(codes, scale, weight)


@triton.jit
def gated_rmsnorm_sigmoid_forward(
    x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, y_ptr, y_stride, rstd_ptr, step, rows, WIDTH: tl.constexpr,
    eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = rmsnorm(x · sigmoid(gate)) · weight, the norm over each segment."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride + segment * step
    gate_row = gate_ptr + row * gate_stride + segment * step
    y_row = y_ptr + row * y_stride + segment * step
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
        v = tl.sigmoid(gate) * x
        square += tl.sum(v * v, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + segment * WIDTH + col, mask=there, other=0.0).to(tl.float32)
        v = tl.sigmoid(gate) * x
        y = rstd * weight * v
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row * segments + segment, rstd, mask=live)


@triton.jit
def gated_rmsnorm_sigmoid_backward(
    x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dgate_ptr,
    dgate_stride, dweight_ptr, step, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of gated_rmsnorm_sigmoid."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    dweight_sums = dweight_ptr + (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + segment) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride + segment * step
        gate_row = gate_ptr + row * gate_stride + segment * step
        dy_row = dy_ptr + row * dy_stride + segment * step
        dx_row = dx_ptr + row * dx_stride + segment * step
        dgate_row = dgate_ptr + row * dgate_stride + segment * step
        rstd = tl.load(rstd_ptr + row * segments + segment, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + segment * WIDTH + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            sigmoid_gate = tl.sigmoid(gate)
            t1 = sigmoid_gate * x
            t2 = weight * dy
            v = t1
            drstd += tl.sum(t2 * v, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + segment * WIDTH + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            sigmoid_gate = tl.sigmoid(gate)
            t1 = sigmoid_gate * x
            t2 = weight * dy
            v = t1
            dv = rstd * (t2 - drstd / WIDTH * rstd * rstd * v)
            dx = dv * sigmoid_gate
            tl.store(dx_row + col, dx, mask=inside)
            dgate = (1 - sigmoid_gate) * dv * t1
            tl.store(dgate_row + col, dgate, mask=inside)
            dweight_tile = tl.sum(rstd * dy * v, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class GatedRmsnormSigmoid(torch.autograd.Function):
    """y = rmsnorm(x · sigmoid(gate)) · weight, the norm over each segment."""

    @staticmethod
    def forward(ctx, x, gate, weight, eps, segments):
        rows = Rows.of(x)
        step = x.shape[-1] // segments
        width = step
        x_rows = rows.matrix(x, segments * step)
        gate_rows = rows.matrix(gate, segments * step)
        y = rows.empty(segments * step)
        rstd = rows.empty(segments, torch.float32)
        fit = tile(rows.count, width, limit=8192, segments=segments)
        gated_rmsnorm_sigmoid_forward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), vector(weight, segments * width), y,
            segments * step, rstd, step, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, gate, weight, rstd)
        ctx.rows, ctx.width, ctx.segments, ctx.step = rows, width, segments, step
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, gate, weight, rstd = ctx.saved_tensors
        rows, width, segments, step = ctx.rows, ctx.width, ctx.segments, ctx.step
        x_rows = rows.matrix(x, segments * step)
        gate_rows = rows.matrix(gate, segments * step)
        dy_rows = rows.matrix(dy, segments * step)
        dx = rows.empty(segments * step)
        dgate = rows.empty(segments * step)
        fit = tile(rows.count, width, limit=4096, segments=segments, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], segments, width)
        gated_rmsnorm_sigmoid_backward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), vector(weight, segments * width), rstd,
            dy_rows, dy_rows.stride(0), dx, segments * step, dgate, segments * step, dweight, step, rows.count,
            WIDTH=width, **fit.options,
        )
        return dx, dgate, dweight.sum(0).flatten(), None, None


def gated_rmsnorm_sigmoid(x, gate, weight, *, eps, segments):
    """y = rmsnorm(x · sigmoid(gate)) · weight, the norm over each segment.

    x [..., segments width], gate [..., segments width], weight [segments width] -> y [..., segments width].
    """
    return GatedRmsnormSigmoid.apply(x, gate, weight, eps, segments)


@triton.jit
def gated_rmsnorm_silu_forward(
    x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, y_ptr, y_stride, rstd_ptr, step, rows, WIDTH: tl.constexpr,
    eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = rmsnorm(x · silu(gate)) · weight, the norm over each segment."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride + segment * step
    gate_row = gate_ptr + row * gate_stride + segment * step
    y_row = y_ptr + row * y_stride + segment * step
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
        v = gate * tl.sigmoid(gate) * x
        square += tl.sum(v * v, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + segment * WIDTH + col, mask=there, other=0.0).to(tl.float32)
        v = gate * tl.sigmoid(gate) * x
        y = rstd * weight * v
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row * segments + segment, rstd, mask=live)


@triton.jit
def gated_rmsnorm_silu_backward(
    x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dgate_ptr,
    dgate_stride, dweight_ptr, step, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of gated_rmsnorm_silu."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    dweight_sums = dweight_ptr + (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + segment) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride + segment * step
        gate_row = gate_ptr + row * gate_stride + segment * step
        dy_row = dy_ptr + row * dy_stride + segment * step
        dx_row = dx_ptr + row * dx_stride + segment * step
        dgate_row = dgate_ptr + row * dgate_stride + segment * step
        rstd = tl.load(rstd_ptr + row * segments + segment, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + segment * WIDTH + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            sigmoid_gate = tl.sigmoid(gate)
            t1 = gate * sigmoid_gate
            t2 = weight * dy
            v = t1 * x
            drstd += tl.sum(t2 * v, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + segment * WIDTH + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            sigmoid_gate = tl.sigmoid(gate)
            t1 = gate * sigmoid_gate
            t2 = weight * dy
            v = t1 * x
            dv = rstd * (t2 - drstd / WIDTH * rstd * rstd * v)
            dx = dv * t1
            tl.store(dx_row + col, dx, mask=inside)
            dgate = ((1 - sigmoid_gate) * gate + 1) * dv * sigmoid_gate * x
            tl.store(dgate_row + col, dgate, mask=inside)
            dweight_tile = tl.sum(rstd * dy * v, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class GatedRmsnormSilu(torch.autograd.Function):
    """y = rmsnorm(x · silu(gate)) · weight, the norm over each segment."""

    @staticmethod
    def forward(ctx, x, gate, weight, eps, segments):
        rows = Rows.of(x)
        step = x.shape[-1] // segments
        width = step
        x_rows = rows.matrix(x, segments * step)
        gate_rows = rows.matrix(gate, segments * step)
        y = rows.empty(segments * step)
        rstd = rows.empty(segments, torch.float32)
        fit = tile(rows.count, width, limit=8192, segments=segments)
        gated_rmsnorm_silu_forward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), vector(weight, segments * width), y,
            segments * step, rstd, step, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, gate, weight, rstd)
        ctx.rows, ctx.width, ctx.segments, ctx.step = rows, width, segments, step
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, gate, weight, rstd = ctx.saved_tensors
        rows, width, segments, step = ctx.rows, ctx.width, ctx.segments, ctx.step
        x_rows = rows.matrix(x, segments * step)
        gate_rows = rows.matrix(gate, segments * step)
        dy_rows = rows.matrix(dy, segments * step)
        dx = rows.empty(segments * step)
        dgate = rows.empty(segments * step)
        fit = tile(rows.count, width, limit=4096, segments=segments, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], segments, width)
        gated_rmsnorm_silu_backward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), vector(weight, segments * width), rstd,
            dy_rows, dy_rows.stride(0), dx, segments * step, dgate, segments * step, dweight, step, rows.count,
            WIDTH=width, **fit.options,
        )
        return dx, dgate, dweight.sum(0).flatten(), None, None


def gated_rmsnorm_silu(x, gate, weight, *, eps, segments):
    """y = rmsnorm(x · silu(gate)) · weight, the norm over each segment.

    x [..., segments width], gate [..., segments width], weight [segments width] -> y [..., segments width].
    """
    return GatedRmsnormSilu.apply(x, gate, weight, eps, segments)


@triton.jit
def gelu_forward(
    x_ptr, x_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = gelu(x)."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    t1 = 0.5 * x
    y = (tl.erf(1.4142135623730951 * t1) + 1) * t1
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def gelu_backward(
    x_ptr, x_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of gelu."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    t1 = 1.4142135623730951 * x
    dx = 0.5 * (0.5641895835477563 * t1 * tl.exp(-0.5 * x * x) + tl.erf(0.5 * t1) + 1) * dy
    tl.store(dx_row + col, dx, mask=inside)


class Gelu(torch.autograd.Function):
    """y = gelu(x)."""

    @staticmethod
    def forward(ctx, x):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        gelu_forward[fit.grid](
            x_rows, x_rows.stride(0), y, width, rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(x)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        gelu_backward[fit.grid](
            x_rows, x_rows.stride(0), dy_rows, dy_rows.stride(0), dx, width, rows.count, WIDTH=width, **fit.options,
        )
        return dx


def gelu(x):
    """y = gelu(x).

    x [..., width] -> y [..., width].
    """
    return Gelu.apply(x)


@triton.jit
def gelu_gate_forward(
    x_ptr, x_stride, gate_ptr, gate_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x · gelu(gate)."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    gate_row = gate_ptr + row * gate_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
    t1 = 0.5 * gate
    y = (tl.erf(1.4142135623730951 * t1) + 1) * t1 * x
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def gelu_gate_backward(
    x_ptr, x_stride, gate_ptr, gate_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, dgate_ptr, dgate_stride, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of gelu_gate."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    gate_row = gate_ptr + row * gate_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    dgate_row = dgate_ptr + row * dgate_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    t1 = 0.5 * gate
    t2 = tl.erf(1.4142135623730951 * t1) + 1
    dx = dy * t1 * t2
    tl.store(dx_row + col, dx, mask=inside)
    dgate = 0.5 * (0.7978845608028654 * gate * tl.exp(-0.5 * gate * gate) + t2) * dy * x
    tl.store(dgate_row + col, dgate, mask=inside)


class GeluGate(torch.autograd.Function):
    """y = x · gelu(gate)."""

    @staticmethod
    def forward(ctx, x, gate):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        gate_rows = rows.matrix(gate, width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        gelu_gate_forward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), y, width, rows.count, WIDTH=width,
            **fit.options,
        )
        ctx.save_for_backward(x, gate)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, gate = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        gate_rows = rows.matrix(gate, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        dgate = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        gelu_gate_backward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), dy_rows, dy_rows.stride(0), dx, width, dgate,
            width, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dgate


def gelu_gate(x, gate):
    """y = x · gelu(gate).

    x [..., width], gate [..., width] -> y [..., width].
    """
    return GeluGate.apply(x, gate)


@triton.jit
def gelu_glu_forward(
    gate_up_ptr, gate_up_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = gelu(gate) · up."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
    t1 = 0.5 * gate
    y = (tl.erf(1.4142135623730951 * t1) + 1) * t1 * up
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def gelu_glu_backward(
    gate_up_ptr, gate_up_stride, dy_ptr, dy_stride, dgate_up_ptr, dgate_up_stride, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of gelu_glu."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    dy_row = dy_ptr + row * dy_stride
    dgate_up_row = dgate_up_ptr + row * dgate_up_stride
    inside = live & there
    gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    t1 = 1.4142135623730951 * gate
    t2 = tl.erf(0.5 * t1) + 1
    t3 = 0.5 * dy
    dgate = (0.5641895835477563 * t1 * tl.exp(-0.5 * gate * gate) + t2) * t3 * up
    dup = gate * t2 * t3
    tl.store(dgate_up_row + col, dgate, mask=inside)
    tl.store(dgate_up_row + WIDTH + col, dup, mask=inside)


class GeluGlu(torch.autograd.Function):
    """y = gelu(gate) · up."""

    @staticmethod
    def forward(ctx, gate_up):
        rows = Rows.of(gate_up)
        width = gate_up.shape[-1] // 2
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        gelu_glu_forward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), y, width, rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(gate_up)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate_up, = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        dy_rows = rows.matrix(dy, width)
        dgate_up = rows.empty(2 * width)
        fit = tile(rows.count, width, columns=True)
        gelu_glu_backward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), dy_rows, dy_rows.stride(0), dgate_up, 2 * width, rows.count,
            WIDTH=width, **fit.options,
        )
        return dgate_up


def gelu_glu(gate_up):
    """y = gelu(gate) · up.

    gate_up [..., 2 width] -> y [..., width].
    """
    return GeluGlu.apply(gate_up)


@triton.jit
def gelu_tanh_forward(
    x_ptr, x_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = gelu_tanh(x)."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    y = 0.5 * (tanh(0.7978845608028654 * (0.044715 * x * x + 1) * x) + 1) * x
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def gelu_tanh_backward(
    x_ptr, x_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of gelu_tanh."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    t1 = x * x
    t2 = 0.7978845608028654 * x
    t3 = tanh((0.044715 * t1 + 1) * t2)
    dx = 0.5 * ((0.134145 * t1 + 1) * (1 - t3 * t3) * t2 + t3 + 1) * dy
    tl.store(dx_row + col, dx, mask=inside)


class GeluTanh(torch.autograd.Function):
    """y = gelu_tanh(x)."""

    @staticmethod
    def forward(ctx, x):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        gelu_tanh_forward[fit.grid](
            x_rows, x_rows.stride(0), y, width, rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(x)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        gelu_tanh_backward[fit.grid](
            x_rows, x_rows.stride(0), dy_rows, dy_rows.stride(0), dx, width, rows.count, WIDTH=width, **fit.options,
        )
        return dx


def gelu_tanh(x):
    """y = gelu_tanh(x).

    x [..., width] -> y [..., width].
    """
    return GeluTanh.apply(x)


@triton.jit
def gelu_tanh_gate_forward(
    x_ptr, x_stride, gate_ptr, gate_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x · gelu_tanh(gate)."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    gate_row = gate_ptr + row * gate_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
    y = 0.5 * (tanh(0.7978845608028654 * (0.044715 * gate * gate + 1) * gate) + 1) * gate * x
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def gelu_tanh_gate_backward(
    x_ptr, x_stride, gate_ptr, gate_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, dgate_ptr, dgate_stride, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of gelu_tanh_gate."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    gate_row = gate_ptr + row * gate_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    dgate_row = dgate_ptr + row * dgate_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    t1 = gate * gate
    t2 = 0.7978845608028654 * gate
    t3 = tanh((0.044715 * t1 + 1) * t2)
    t4 = t3 + 1
    t5 = 0.5 * dy
    dx = gate * t4 * t5
    tl.store(dx_row + col, dx, mask=inside)
    dgate = ((0.134145 * t1 + 1) * (1 - t3 * t3) * t2 + t4) * t5 * x
    tl.store(dgate_row + col, dgate, mask=inside)


class GeluTanhGate(torch.autograd.Function):
    """y = x · gelu_tanh(gate)."""

    @staticmethod
    def forward(ctx, x, gate):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        gate_rows = rows.matrix(gate, width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        gelu_tanh_gate_forward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), y, width, rows.count, WIDTH=width,
            **fit.options,
        )
        ctx.save_for_backward(x, gate)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, gate = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        gate_rows = rows.matrix(gate, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        dgate = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        gelu_tanh_gate_backward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), dy_rows, dy_rows.stride(0), dx, width, dgate,
            width, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dgate


def gelu_tanh_gate(x, gate):
    """y = x · gelu_tanh(gate).

    x [..., width], gate [..., width] -> y [..., width].
    """
    return GeluTanhGate.apply(x, gate)


@triton.jit
def gelu_tanh_glu_forward(
    gate_up_ptr, gate_up_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = gelu_tanh(gate) · up."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
    y = 0.5 * (tanh(0.7978845608028654 * (0.044715 * gate * gate + 1) * gate) + 1) * gate * up
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def gelu_tanh_glu_backward(
    gate_up_ptr, gate_up_stride, dy_ptr, dy_stride, dgate_up_ptr, dgate_up_stride, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of gelu_tanh_glu."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    dy_row = dy_ptr + row * dy_stride
    dgate_up_row = dgate_up_ptr + row * dgate_up_stride
    inside = live & there
    gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    t1 = gate * gate
    t2 = 0.7978845608028654 * gate
    t3 = tanh((0.044715 * t1 + 1) * t2)
    t4 = t3 + 1
    t5 = 0.5 * dy
    dgate = ((0.134145 * t1 + 1) * (1 - t3 * t3) * t2 + t4) * t5 * up
    dup = gate * t4 * t5
    tl.store(dgate_up_row + col, dgate, mask=inside)
    tl.store(dgate_up_row + WIDTH + col, dup, mask=inside)


class GeluTanhGlu(torch.autograd.Function):
    """y = gelu_tanh(gate) · up."""

    @staticmethod
    def forward(ctx, gate_up):
        rows = Rows.of(gate_up)
        width = gate_up.shape[-1] // 2
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        gelu_tanh_glu_forward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), y, width, rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(gate_up)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate_up, = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        dy_rows = rows.matrix(dy, width)
        dgate_up = rows.empty(2 * width)
        fit = tile(rows.count, width, columns=True)
        gelu_tanh_glu_backward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), dy_rows, dy_rows.stride(0), dgate_up, 2 * width, rows.count,
            WIDTH=width, **fit.options,
        )
        return dgate_up


def gelu_tanh_glu(gate_up):
    """y = gelu_tanh(gate) · up.

    gate_up [..., 2 width] -> y [..., width].
    """
    return GeluTanhGlu.apply(gate_up)


@triton.jit
def head_gated_rmsnorm_sigmoid_forward(
    x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, y_ptr, y_stride, rstd_ptr, step, rows, WIDTH: tl.constexpr,
    eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = rmsnorm(x · sigmoid(gate)) · weight, the norm over each segment."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride + segment * step
    gate_row = gate_ptr + row * gate_stride + segment * step
    y_row = y_ptr + row * y_stride + segment * step
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
        v = tl.sigmoid(gate) * x
        square += tl.sum(v * v, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        v = tl.sigmoid(gate) * x
        y = rstd * weight * v
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row * segments + segment, rstd, mask=live)


@triton.jit
def head_gated_rmsnorm_sigmoid_backward(
    x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dgate_ptr,
    dgate_stride, dweight_ptr, step, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of head_gated_rmsnorm_sigmoid."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    dweight_sums = dweight_ptr + (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + segment) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride + segment * step
        gate_row = gate_ptr + row * gate_stride + segment * step
        dy_row = dy_ptr + row * dy_stride + segment * step
        dx_row = dx_ptr + row * dx_stride + segment * step
        dgate_row = dgate_ptr + row * dgate_stride + segment * step
        rstd = tl.load(rstd_ptr + row * segments + segment, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            sigmoid_gate = tl.sigmoid(gate)
            t1 = sigmoid_gate * x
            t2 = weight * dy
            v = t1
            drstd += tl.sum(t2 * v, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            sigmoid_gate = tl.sigmoid(gate)
            t1 = sigmoid_gate * x
            t2 = weight * dy
            v = t1
            dv = rstd * (t2 - drstd / WIDTH * rstd * rstd * v)
            dx = dv * sigmoid_gate
            tl.store(dx_row + col, dx, mask=inside)
            dgate = (1 - sigmoid_gate) * dv * t1
            tl.store(dgate_row + col, dgate, mask=inside)
            dweight_tile = tl.sum(rstd * dy * v, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class HeadGatedRmsnormSigmoid(torch.autograd.Function):
    """y = rmsnorm(x · sigmoid(gate)) · weight, the norm over each segment."""

    @staticmethod
    def forward(ctx, x, gate, weight, eps, segments):
        rows = Rows.of(x)
        step = x.shape[-1] // segments
        width = step
        x_rows = rows.matrix(x, segments * step)
        gate_rows = rows.matrix(gate, segments * step)
        y = rows.empty(segments * step)
        rstd = rows.empty(segments, torch.float32)
        fit = tile(rows.count, width, limit=8192, segments=segments)
        head_gated_rmsnorm_sigmoid_forward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), vector(weight, width), y, segments * step,
            rstd, step, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, gate, weight, rstd)
        ctx.rows, ctx.width, ctx.segments, ctx.step = rows, width, segments, step
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, gate, weight, rstd = ctx.saved_tensors
        rows, width, segments, step = ctx.rows, ctx.width, ctx.segments, ctx.step
        x_rows = rows.matrix(x, segments * step)
        gate_rows = rows.matrix(gate, segments * step)
        dy_rows = rows.matrix(dy, segments * step)
        dx = rows.empty(segments * step)
        dgate = rows.empty(segments * step)
        fit = tile(rows.count, width, limit=4096, segments=segments, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], segments, width)
        head_gated_rmsnorm_sigmoid_backward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), vector(weight, width), rstd, dy_rows,
            dy_rows.stride(0), dx, segments * step, dgate, segments * step, dweight, step, rows.count, WIDTH=width,
            **fit.options,
        )
        return dx, dgate, dweight.sum((0, 1)), None, None


def head_gated_rmsnorm_sigmoid(x, gate, weight, *, eps, segments):
    """y = rmsnorm(x · sigmoid(gate)) · weight, the norm over each segment.

    x [..., segments width], gate [..., segments width], weight [width] -> y [..., segments width].
    """
    return HeadGatedRmsnormSigmoid.apply(x, gate, weight, eps, segments)


@triton.jit
def head_gated_rmsnorm_silu_forward(
    x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, y_ptr, y_stride, rstd_ptr, step, rows, WIDTH: tl.constexpr,
    eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = rmsnorm(x · silu(gate)) · weight, the norm over each segment."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride + segment * step
    gate_row = gate_ptr + row * gate_stride + segment * step
    y_row = y_ptr + row * y_stride + segment * step
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
        v = gate * tl.sigmoid(gate) * x
        square += tl.sum(v * v, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        v = gate * tl.sigmoid(gate) * x
        y = rstd * weight * v
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row * segments + segment, rstd, mask=live)


@triton.jit
def head_gated_rmsnorm_silu_backward(
    x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dgate_ptr,
    dgate_stride, dweight_ptr, step, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of head_gated_rmsnorm_silu."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    dweight_sums = dweight_ptr + (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + segment) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride + segment * step
        gate_row = gate_ptr + row * gate_stride + segment * step
        dy_row = dy_ptr + row * dy_stride + segment * step
        dx_row = dx_ptr + row * dx_stride + segment * step
        dgate_row = dgate_ptr + row * dgate_stride + segment * step
        rstd = tl.load(rstd_ptr + row * segments + segment, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            sigmoid_gate = tl.sigmoid(gate)
            t1 = gate * sigmoid_gate
            t2 = weight * dy
            v = t1 * x
            drstd += tl.sum(t2 * v, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            sigmoid_gate = tl.sigmoid(gate)
            t1 = gate * sigmoid_gate
            t2 = weight * dy
            v = t1 * x
            dv = rstd * (t2 - drstd / WIDTH * rstd * rstd * v)
            dx = dv * t1
            tl.store(dx_row + col, dx, mask=inside)
            dgate = ((1 - sigmoid_gate) * gate + 1) * dv * sigmoid_gate * x
            tl.store(dgate_row + col, dgate, mask=inside)
            dweight_tile = tl.sum(rstd * dy * v, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class HeadGatedRmsnormSilu(torch.autograd.Function):
    """y = rmsnorm(x · silu(gate)) · weight, the norm over each segment."""

    @staticmethod
    def forward(ctx, x, gate, weight, eps, segments):
        rows = Rows.of(x)
        step = x.shape[-1] // segments
        width = step
        x_rows = rows.matrix(x, segments * step)
        gate_rows = rows.matrix(gate, segments * step)
        y = rows.empty(segments * step)
        rstd = rows.empty(segments, torch.float32)
        fit = tile(rows.count, width, limit=8192, segments=segments)
        head_gated_rmsnorm_silu_forward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), vector(weight, width), y, segments * step,
            rstd, step, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, gate, weight, rstd)
        ctx.rows, ctx.width, ctx.segments, ctx.step = rows, width, segments, step
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, gate, weight, rstd = ctx.saved_tensors
        rows, width, segments, step = ctx.rows, ctx.width, ctx.segments, ctx.step
        x_rows = rows.matrix(x, segments * step)
        gate_rows = rows.matrix(gate, segments * step)
        dy_rows = rows.matrix(dy, segments * step)
        dx = rows.empty(segments * step)
        dgate = rows.empty(segments * step)
        fit = tile(rows.count, width, limit=4096, segments=segments, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], segments, width)
        head_gated_rmsnorm_silu_backward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), vector(weight, width), rstd, dy_rows,
            dy_rows.stride(0), dx, segments * step, dgate, segments * step, dweight, step, rows.count, WIDTH=width,
            **fit.options,
        )
        return dx, dgate, dweight.sum((0, 1)), None, None


def head_gated_rmsnorm_silu(x, gate, weight, *, eps, segments):
    """y = rmsnorm(x · silu(gate)) · weight, the norm over each segment.

    x [..., segments width], gate [..., segments width], weight [width] -> y [..., segments width].
    """
    return HeadGatedRmsnormSilu.apply(x, gate, weight, eps, segments)


@triton.jit
def head_layernorm_forward(
    x_ptr, x_stride, weight_ptr, bias_ptr, y_ptr, y_stride, center_ptr, rstd_ptr, step, rows, WIDTH: tl.constexpr,
    eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = (x - mean) / sqrt(variance + eps) · weight + bias, in each segment."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride + segment * step
    y_row = y_ptr + row * y_stride + segment * step
    center = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        center += tl.sum(x, 1, keep_dims=True)
    center = center / WIDTH
    variance = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        apart = x - center
        variance += tl.sum(tl.where(inside, apart * apart, 0.0), 1, keep_dims=True)
    variance = variance / WIDTH
    rstd = tl.rsqrt(variance + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + col, mask=there, other=0.0).to(tl.float32)
        apart = x - center
        y = rstd * weight * apart + bias
        tl.store(y_row + col, y, mask=inside)
    tl.store(center_ptr + row * segments + segment, center, mask=live)
    tl.store(rstd_ptr + row * segments + segment, rstd, mask=live)


@triton.jit
def head_layernorm_backward(
    x_ptr, x_stride, weight_ptr, center_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr, dbias_ptr,
    step, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of head_layernorm."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    dweight_sums = dweight_ptr + (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + segment) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    dbias_sums = dbias_ptr + (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + segment) * WIDTH
    dbias = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride + segment * step
        dy_row = dy_ptr + row * dy_stride + segment * step
        dx_row = dx_ptr + row * dx_stride + segment * step
        center = tl.load(center_ptr + row * segments + segment, mask=live, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row * segments + segment, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        dcenter = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = x - center
            drstd += tl.sum(apart * t1, 1, keep_dims=True)
            dcenter += tl.sum(t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = x - center
            dx = rstd * (t1 - drstd / WIDTH * rstd * rstd * apart - dcenter / WIDTH)
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * apart * dy, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
            dbias_tile = tl.sum(dy, 0, keep_dims=True)
            dbias = add_columns(dbias, dbias_tile, dbias_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)
        tl.store(dbias_sums + col, dbias, mask=col < WIDTH)


class HeadLayernorm(torch.autograd.Function):
    """y = (x - mean) / sqrt(variance + eps) · weight + bias, in each segment."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps, segments):
        rows = Rows.of(x)
        step = x.shape[-1] // segments
        width = step
        x_rows = rows.matrix(x, segments * step)
        y = rows.empty(segments * step)
        center = rows.empty(segments, torch.float32)
        rstd = rows.empty(segments, torch.float32)
        fit = tile(rows.count, width, limit=8192, segments=segments)
        head_layernorm_forward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), vector(bias, width), y, segments * step, center, rstd,
            step, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, weight, center, rstd)
        ctx.rows, ctx.width, ctx.segments, ctx.step = rows, width, segments, step
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, center, rstd = ctx.saved_tensors
        rows, width, segments, step = ctx.rows, ctx.width, ctx.segments, ctx.step
        x_rows = rows.matrix(x, segments * step)
        dy_rows = rows.matrix(dy, segments * step)
        dx = rows.empty(segments * step)
        fit = tile(rows.count, width, limit=8192, segments=segments, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], segments, width)
        dbias = rows.zeros(fit.grid[0], segments, width)
        head_layernorm_backward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), center, rstd, dy_rows, dy_rows.stride(0), dx,
            segments * step, dweight, dbias, step, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dweight.sum((0, 1)), dbias.sum((0, 1)), None, None


def head_layernorm(x, weight, bias, *, eps, segments):
    """y = (x - mean) / sqrt(variance + eps) · weight + bias, in each segment.

    x [..., segments width], weight [width], bias [width] -> y [..., segments width].
    """
    return HeadLayernorm.apply(x, weight, bias, eps, segments)


@triton.jit
def head_layernorm_without_bias_forward(
    x_ptr, x_stride, weight_ptr, y_ptr, y_stride, center_ptr, rstd_ptr, step, rows, WIDTH: tl.constexpr,
    eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = (x - mean) / sqrt(variance + eps) · weight, in each segment."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride + segment * step
    y_row = y_ptr + row * y_stride + segment * step
    center = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        center += tl.sum(x, 1, keep_dims=True)
    center = center / WIDTH
    variance = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        apart = x - center
        variance += tl.sum(tl.where(inside, apart * apart, 0.0), 1, keep_dims=True)
    variance = variance / WIDTH
    rstd = tl.rsqrt(variance + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        apart = x - center
        y = rstd * weight * apart
        tl.store(y_row + col, y, mask=inside)
    tl.store(center_ptr + row * segments + segment, center, mask=live)
    tl.store(rstd_ptr + row * segments + segment, rstd, mask=live)


@triton.jit
def head_layernorm_without_bias_backward(
    x_ptr, x_stride, weight_ptr, center_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr, step,
    rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of head_layernorm_without_bias."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    dweight_sums = dweight_ptr + (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + segment) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride + segment * step
        dy_row = dy_ptr + row * dy_stride + segment * step
        dx_row = dx_ptr + row * dx_stride + segment * step
        center = tl.load(center_ptr + row * segments + segment, mask=live, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row * segments + segment, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        dcenter = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = x - center
            drstd += tl.sum(apart * t1, 1, keep_dims=True)
            dcenter += tl.sum(t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = x - center
            dx = rstd * (t1 - drstd / WIDTH * rstd * rstd * apart - dcenter / WIDTH)
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * apart * dy, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class HeadLayernormWithoutBias(torch.autograd.Function):
    """y = (x - mean) / sqrt(variance + eps) · weight, in each segment."""

    @staticmethod
    def forward(ctx, x, weight, eps, segments):
        rows = Rows.of(x)
        step = x.shape[-1] // segments
        width = step
        x_rows = rows.matrix(x, segments * step)
        y = rows.empty(segments * step)
        center = rows.empty(segments, torch.float32)
        rstd = rows.empty(segments, torch.float32)
        fit = tile(rows.count, width, limit=8192, segments=segments)
        head_layernorm_without_bias_forward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), y, segments * step, center, rstd, step, rows.count,
            WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, weight, center, rstd)
        ctx.rows, ctx.width, ctx.segments, ctx.step = rows, width, segments, step
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, center, rstd = ctx.saved_tensors
        rows, width, segments, step = ctx.rows, ctx.width, ctx.segments, ctx.step
        x_rows = rows.matrix(x, segments * step)
        dy_rows = rows.matrix(dy, segments * step)
        dx = rows.empty(segments * step)
        fit = tile(rows.count, width, limit=8192, segments=segments, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], segments, width)
        head_layernorm_without_bias_backward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), center, rstd, dy_rows, dy_rows.stride(0), dx,
            segments * step, dweight, step, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dweight.sum((0, 1)), None, None


def head_layernorm_without_bias(x, weight, *, eps, segments):
    """y = (x - mean) / sqrt(variance + eps) · weight, in each segment.

    x [..., segments width], weight [width] -> y [..., segments width].
    """
    return HeadLayernormWithoutBias.apply(x, weight, eps, segments)


@triton.jit
def head_plain_rmsnorm_forward(
    x_ptr, x_stride, y_ptr, y_stride, rstd_ptr, step, rows, WIDTH: tl.constexpr, eps: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x²) + eps), in each segment."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride + segment * step
    y_row = y_ptr + row * y_stride + segment * step
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        square += tl.sum(x * x, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        y = rstd * x
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row * segments + segment, rstd, mask=live)


@triton.jit
def head_plain_rmsnorm_backward(
    x_ptr, x_stride, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, step, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of head_plain_rmsnorm."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride + segment * step
    dy_row = dy_ptr + row * dy_stride + segment * step
    dx_row = dx_ptr + row * dx_stride + segment * step
    rstd = tl.load(rstd_ptr + row * segments + segment, mask=live, other=0.0).to(tl.float32)
    drstd = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        drstd += tl.sum(dy * x, 1, keep_dims=True)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        dx = rstd * (dy - drstd / WIDTH * rstd * rstd * x)
        tl.store(dx_row + col, dx, mask=inside)


class HeadPlainRmsnorm(torch.autograd.Function):
    """y = x / sqrt(mean(x²) + eps), in each segment."""

    @staticmethod
    def forward(ctx, x, eps, segments):
        rows = Rows.of(x)
        step = x.shape[-1] // segments
        width = step
        x_rows = rows.matrix(x, segments * step)
        y = rows.empty(segments * step)
        rstd = rows.empty(segments, torch.float32)
        fit = tile(rows.count, width, limit=16384, segments=segments)
        head_plain_rmsnorm_forward[fit.grid](
            x_rows, x_rows.stride(0), y, segments * step, rstd, step, rows.count, WIDTH=width, eps=eps,
            **fit.options,
        )
        ctx.save_for_backward(x, rstd)
        ctx.rows, ctx.width, ctx.segments, ctx.step = rows, width, segments, step
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, rstd = ctx.saved_tensors
        rows, width, segments, step = ctx.rows, ctx.width, ctx.segments, ctx.step
        x_rows = rows.matrix(x, segments * step)
        dy_rows = rows.matrix(dy, segments * step)
        dx = rows.empty(segments * step)
        fit = tile(rows.count, width, limit=16384, segments=segments)
        head_plain_rmsnorm_backward[fit.grid](
            x_rows, x_rows.stride(0), rstd, dy_rows, dy_rows.stride(0), dx, segments * step, step, rows.count,
            WIDTH=width, **fit.options,
        )
        return dx, None, None


def head_plain_rmsnorm(x, *, eps, segments):
    """y = x / sqrt(mean(x²) + eps), in each segment.

    x [..., segments width] -> y [..., segments width].
    """
    return HeadPlainRmsnorm.apply(x, eps, segments)


@triton.jit
def head_rmsnorm_forward(
    x_ptr, x_stride, weight_ptr, y_ptr, y_stride, rstd_ptr, step, rows, WIDTH: tl.constexpr, eps: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x²) + eps) · weight, in each segment."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride + segment * step
    y_row = y_ptr + row * y_stride + segment * step
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        square += tl.sum(x * x, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        y = rstd * weight * x
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row * segments + segment, rstd, mask=live)


@triton.jit
def head_rmsnorm_backward(
    x_ptr, x_stride, weight_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr, step, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of head_rmsnorm."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    dweight_sums = dweight_ptr + (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + segment) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride + segment * step
        dy_row = dy_ptr + row * dy_stride + segment * step
        dx_row = dx_ptr + row * dx_stride + segment * step
        rstd = tl.load(rstd_ptr + row * segments + segment, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            drstd += tl.sum(t1 * x, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            dx = rstd * (t1 - drstd / WIDTH * rstd * rstd * x)
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * dy * x, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class HeadRmsnorm(torch.autograd.Function):
    """y = x / sqrt(mean(x²) + eps) · weight, in each segment."""

    @staticmethod
    def forward(ctx, x, weight, eps, segments):
        rows = Rows.of(x)
        step = x.shape[-1] // segments
        width = step
        x_rows = rows.matrix(x, segments * step)
        y = rows.empty(segments * step)
        rstd = rows.empty(segments, torch.float32)
        fit = tile(rows.count, width, limit=16384, segments=segments)
        head_rmsnorm_forward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), y, segments * step, rstd, step, rows.count,
            WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, weight, rstd)
        ctx.rows, ctx.width, ctx.segments, ctx.step = rows, width, segments, step
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, rstd = ctx.saved_tensors
        rows, width, segments, step = ctx.rows, ctx.width, ctx.segments, ctx.step
        x_rows = rows.matrix(x, segments * step)
        dy_rows = rows.matrix(dy, segments * step)
        dx = rows.empty(segments * step)
        fit = tile(rows.count, width, limit=8192, segments=segments, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], segments, width)
        head_rmsnorm_backward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), rstd, dy_rows, dy_rows.stride(0), dx, segments * step,
            dweight, step, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dweight.sum((0, 1)), None, None


def head_rmsnorm(x, weight, *, eps, segments):
    """y = x / sqrt(mean(x²) + eps) · weight, in each segment.

    x [..., segments width], weight [width] -> y [..., segments width].
    """
    return HeadRmsnorm.apply(x, weight, eps, segments)


@triton.jit
def head_rmsnorm_gated_sigmoid_forward(
    x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, y_ptr, y_stride, rstd_ptr, step, rows, WIDTH: tl.constexpr,
    eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = rmsnorm(x) · weight · sigmoid(gate), the norm over each segment."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride + segment * step
    gate_row = gate_ptr + row * gate_stride + segment * step
    y_row = y_ptr + row * y_stride + segment * step
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        square += tl.sum(x * x, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        y = rstd * weight * tl.sigmoid(gate) * x
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row * segments + segment, rstd, mask=live)


@triton.jit
def head_rmsnorm_gated_sigmoid_backward(
    x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dgate_ptr,
    dgate_stride, dweight_ptr, step, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of head_rmsnorm_gated_sigmoid."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    dweight_sums = dweight_ptr + (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + segment) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride + segment * step
        gate_row = gate_ptr + row * gate_stride + segment * step
        dy_row = dy_ptr + row * dy_stride + segment * step
        dx_row = dx_ptr + row * dx_stride + segment * step
        dgate_row = dgate_ptr + row * dgate_stride + segment * step
        rstd = tl.load(rstd_ptr + row * segments + segment, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            sigmoid_gate = tl.sigmoid(gate)
            t1 = dy * sigmoid_gate
            t2 = weight * t1
            t3 = t2 * x
            drstd += tl.sum(t3, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            sigmoid_gate = tl.sigmoid(gate)
            t1 = dy * sigmoid_gate
            t2 = weight * t1
            t3 = t2 * x
            dx = rstd * (t2 - drstd / WIDTH * rstd * rstd * x)
            tl.store(dx_row + col, dx, mask=inside)
            dgate = rstd * (1 - sigmoid_gate) * t3
            tl.store(dgate_row + col, dgate, mask=inside)
            dweight_tile = tl.sum(rstd * t1 * x, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class HeadRmsnormGatedSigmoid(torch.autograd.Function):
    """y = rmsnorm(x) · weight · sigmoid(gate), the norm over each segment."""

    @staticmethod
    def forward(ctx, x, gate, weight, eps, segments):
        rows = Rows.of(x)
        step = x.shape[-1] // segments
        width = step
        x_rows = rows.matrix(x, segments * step)
        gate_rows = rows.matrix(gate, segments * step)
        y = rows.empty(segments * step)
        rstd = rows.empty(segments, torch.float32)
        fit = tile(rows.count, width, limit=8192, segments=segments)
        head_rmsnorm_gated_sigmoid_forward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), vector(weight, width), y, segments * step,
            rstd, step, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, gate, weight, rstd)
        ctx.rows, ctx.width, ctx.segments, ctx.step = rows, width, segments, step
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, gate, weight, rstd = ctx.saved_tensors
        rows, width, segments, step = ctx.rows, ctx.width, ctx.segments, ctx.step
        x_rows = rows.matrix(x, segments * step)
        gate_rows = rows.matrix(gate, segments * step)
        dy_rows = rows.matrix(dy, segments * step)
        dx = rows.empty(segments * step)
        dgate = rows.empty(segments * step)
        fit = tile(rows.count, width, limit=4096, segments=segments, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], segments, width)
        head_rmsnorm_gated_sigmoid_backward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), vector(weight, width), rstd, dy_rows,
            dy_rows.stride(0), dx, segments * step, dgate, segments * step, dweight, step, rows.count, WIDTH=width,
            **fit.options,
        )
        return dx, dgate, dweight.sum((0, 1)), None, None


def head_rmsnorm_gated_sigmoid(x, gate, weight, *, eps, segments):
    """y = rmsnorm(x) · weight · sigmoid(gate), the norm over each segment.

    x [..., segments width], gate [..., segments width], weight [width] -> y [..., segments width].
    """
    return HeadRmsnormGatedSigmoid.apply(x, gate, weight, eps, segments)


@triton.jit
def head_rmsnorm_gated_silu_forward(
    x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, y_ptr, y_stride, rstd_ptr, step, rows, WIDTH: tl.constexpr,
    eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = rmsnorm(x) · weight · silu(gate), the norm over each segment."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride + segment * step
    gate_row = gate_ptr + row * gate_stride + segment * step
    y_row = y_ptr + row * y_stride + segment * step
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        square += tl.sum(x * x, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        y = rstd * weight * gate * tl.sigmoid(gate) * x
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row * segments + segment, rstd, mask=live)


@triton.jit
def head_rmsnorm_gated_silu_backward(
    x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dgate_ptr,
    dgate_stride, dweight_ptr, step, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of head_rmsnorm_gated_silu."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    dweight_sums = dweight_ptr + (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + segment) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride + segment * step
        gate_row = gate_ptr + row * gate_stride + segment * step
        dy_row = dy_ptr + row * dy_stride + segment * step
        dx_row = dx_ptr + row * dx_stride + segment * step
        dgate_row = dgate_ptr + row * dgate_stride + segment * step
        rstd = tl.load(rstd_ptr + row * segments + segment, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            sigmoid_gate = tl.sigmoid(gate)
            t1 = dy * gate * sigmoid_gate
            t2 = weight * t1
            drstd += tl.sum(t2 * x, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            sigmoid_gate = tl.sigmoid(gate)
            t1 = dy * gate * sigmoid_gate
            t2 = weight * t1
            t3 = rstd * x
            dx = rstd * (t2 - drstd / WIDTH * rstd * rstd * x)
            tl.store(dx_row + col, dx, mask=inside)
            dgate = weight * ((1 - sigmoid_gate) * gate + 1) * dy * sigmoid_gate * t3
            tl.store(dgate_row + col, dgate, mask=inside)
            dweight_tile = tl.sum(t1 * t3, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class HeadRmsnormGatedSilu(torch.autograd.Function):
    """y = rmsnorm(x) · weight · silu(gate), the norm over each segment."""

    @staticmethod
    def forward(ctx, x, gate, weight, eps, segments):
        rows = Rows.of(x)
        step = x.shape[-1] // segments
        width = step
        x_rows = rows.matrix(x, segments * step)
        gate_rows = rows.matrix(gate, segments * step)
        y = rows.empty(segments * step)
        rstd = rows.empty(segments, torch.float32)
        fit = tile(rows.count, width, limit=8192, segments=segments)
        head_rmsnorm_gated_silu_forward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), vector(weight, width), y, segments * step,
            rstd, step, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, gate, weight, rstd)
        ctx.rows, ctx.width, ctx.segments, ctx.step = rows, width, segments, step
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, gate, weight, rstd = ctx.saved_tensors
        rows, width, segments, step = ctx.rows, ctx.width, ctx.segments, ctx.step
        x_rows = rows.matrix(x, segments * step)
        gate_rows = rows.matrix(gate, segments * step)
        dy_rows = rows.matrix(dy, segments * step)
        dx = rows.empty(segments * step)
        dgate = rows.empty(segments * step)
        fit = tile(rows.count, width, limit=4096, segments=segments, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], segments, width)
        head_rmsnorm_gated_silu_backward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), vector(weight, width), rstd, dy_rows,
            dy_rows.stride(0), dx, segments * step, dgate, segments * step, dweight, step, rows.count, WIDTH=width,
            **fit.options,
        )
        return dx, dgate, dweight.sum((0, 1)), None, None


def head_rmsnorm_gated_silu(x, gate, weight, *, eps, segments):
    """y = rmsnorm(x) · weight · silu(gate), the norm over each segment.

    x [..., segments width], gate [..., segments width], weight [width] -> y [..., segments width].
    """
    return HeadRmsnormGatedSilu.apply(x, gate, weight, eps, segments)


@triton.jit
def head_zero_centered_rmsnorm_forward(
    x_ptr, x_stride, weight_ptr, y_ptr, y_stride, rstd_ptr, step, rows, WIDTH: tl.constexpr, eps: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x²) + eps) · (1 + weight), in each segment."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride + segment * step
    y_row = y_ptr + row * y_stride + segment * step
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        square += tl.sum(x * x, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        y = rstd * (weight + 1) * x
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row * segments + segment, rstd, mask=live)


@triton.jit
def head_zero_centered_rmsnorm_backward(
    x_ptr, x_stride, weight_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr, step, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of head_zero_centered_rmsnorm."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    dweight_sums = dweight_ptr + (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + segment) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride + segment * step
        dy_row = dy_ptr + row * dy_stride + segment * step
        dx_row = dx_ptr + row * dx_stride + segment * step
        rstd = tl.load(rstd_ptr + row * segments + segment, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = (weight + 1) * dy
            drstd += tl.sum(t1 * x, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = (weight + 1) * dy
            dx = rstd * (t1 - drstd / WIDTH * rstd * rstd * x)
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * dy * x, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class HeadZeroCenteredRmsnorm(torch.autograd.Function):
    """y = x / sqrt(mean(x²) + eps) · (1 + weight), in each segment."""

    @staticmethod
    def forward(ctx, x, weight, eps, segments):
        rows = Rows.of(x)
        step = x.shape[-1] // segments
        width = step
        x_rows = rows.matrix(x, segments * step)
        y = rows.empty(segments * step)
        rstd = rows.empty(segments, torch.float32)
        fit = tile(rows.count, width, limit=16384, segments=segments)
        head_zero_centered_rmsnorm_forward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), y, segments * step, rstd, step, rows.count,
            WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, weight, rstd)
        ctx.rows, ctx.width, ctx.segments, ctx.step = rows, width, segments, step
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, rstd = ctx.saved_tensors
        rows, width, segments, step = ctx.rows, ctx.width, ctx.segments, ctx.step
        x_rows = rows.matrix(x, segments * step)
        dy_rows = rows.matrix(dy, segments * step)
        dx = rows.empty(segments * step)
        fit = tile(rows.count, width, limit=8192, segments=segments, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], segments, width)
        head_zero_centered_rmsnorm_backward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), rstd, dy_rows, dy_rows.stride(0), dx, segments * step,
            dweight, step, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dweight.sum((0, 1)), None, None


def head_zero_centered_rmsnorm(x, weight, *, eps, segments):
    """y = x / sqrt(mean(x²) + eps) · (1 + weight), in each segment.

    x [..., segments width], weight [width] -> y [..., segments width].
    """
    return HeadZeroCenteredRmsnorm.apply(x, weight, eps, segments)


@triton.jit
def l2norm_forward(
    x_ptr, x_stride, y_ptr, y_stride, scale_ptr, rows, WIDTH: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x / sqrt(sum(x²) + eps)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        square += tl.sum(x * x, 1, keep_dims=True)
    scale = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        y = scale * x
        tl.store(y_row + col, y, mask=inside)
    tl.store(scale_ptr + row, scale, mask=live)


@triton.jit
def l2norm_backward(
    x_ptr, x_stride, scale_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of l2norm."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    scale = tl.load(scale_ptr + row, mask=live, other=0.0).to(tl.float32)
    dscale = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        dscale += tl.sum(dy * x, 1, keep_dims=True)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        dx = scale * (dy - dscale * scale * scale * x)
        tl.store(dx_row + col, dx, mask=inside)


class L2norm(torch.autograd.Function):
    """y = x / sqrt(sum(x²) + eps)."""

    @staticmethod
    def forward(ctx, x, eps):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        y = rows.empty(width)
        scale = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=16384)
        l2norm_forward[fit.grid](
            x_rows, x_rows.stride(0), y, width, scale, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, scale)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, scale = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=16384)
        l2norm_backward[fit.grid](
            x_rows, x_rows.stride(0), scale, dy_rows, dy_rows.stride(0), dx, width, rows.count, WIDTH=width,
            **fit.options,
        )
        return dx, None


def l2norm(x, *, eps):
    """y = x / sqrt(sum(x²) + eps).

    x [..., width] -> y [..., width].
    """
    return L2norm.apply(x, eps)


@triton.jit
def layer_scaled_add_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, weight_ptr, y_ptr, y_stride, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = residual + weight · x, a weight for each column."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
    y = residual + weight * x
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def layer_scaled_add_backward(
    x_ptr, x_stride, weight_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of layer_scaled_add."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        dx = weight * dy
        tl.store(dx_row + col, dx, mask=inside)
        dweight += tl.sum(dy * x, 0, keep_dims=True)
    tl.store(dweight_sums + col, dweight, mask=there)


class LayerScaledAdd(torch.autograd.Function):
    """y = residual + weight · x, a weight for each column."""

    @staticmethod
    def forward(ctx, x, residual, weight):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        layer_scaled_add_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), vector(weight, width), y, width,
            rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(x, weight)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, columns=True, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        layer_scaled_add_backward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), dy_rows, dy_rows.stride(0), dx, width, dweight,
            rows.count, WIDTH=width, **fit.options,
        )
        return dx, dy, dweight.sum(0)


def layer_scaled_add(x, residual, weight):
    """y = residual + weight · x, a weight for each column.

    x [..., width], residual [..., width], weight [width] -> y [..., width].
    """
    return LayerScaledAdd.apply(x, residual, weight)


@triton.jit
def layernorm_forward(
    x_ptr, x_stride, weight_ptr, bias_ptr, y_ptr, y_stride, center_ptr, rstd_ptr, rows, WIDTH: tl.constexpr,
    eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = (x - mean) / sqrt(variance + eps) · weight + bias."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    center = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        center += tl.sum(x, 1, keep_dims=True)
    center = center / WIDTH
    variance = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        apart = x - center
        variance += tl.sum(tl.where(inside, apart * apart, 0.0), 1, keep_dims=True)
    variance = variance / WIDTH
    rstd = tl.rsqrt(variance + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + col, mask=there, other=0.0).to(tl.float32)
        apart = x - center
        y = rstd * weight * apart + bias
        tl.store(y_row + col, y, mask=inside)
    tl.store(center_ptr + row, center, mask=live)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def layernorm_backward(
    x_ptr, x_stride, weight_ptr, center_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr, dbias_ptr,
    rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of layernorm."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    dbias_sums = dbias_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dbias = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        center = tl.load(center_ptr + row, mask=live, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        dcenter = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = x - center
            drstd += tl.sum(apart * t1, 1, keep_dims=True)
            dcenter += tl.sum(t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = x - center
            dx = rstd * (t1 - drstd / WIDTH * rstd * rstd * apart - dcenter / WIDTH)
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * apart * dy, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
            dbias_tile = tl.sum(dy, 0, keep_dims=True)
            dbias = add_columns(dbias, dbias_tile, dbias_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)
        tl.store(dbias_sums + col, dbias, mask=col < WIDTH)


class Layernorm(torch.autograd.Function):
    """y = (x - mean) / sqrt(variance + eps) · weight + bias."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        y = rows.empty(width)
        center = rows.empty(1, torch.float32)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        layernorm_forward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), vector(bias, width), y, width, center, rstd,
            rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, weight, center, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, center, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        dbias = rows.zeros(fit.grid[0], width)
        layernorm_backward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), center, rstd, dy_rows, dy_rows.stride(0), dx, width,
            dweight, dbias, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dweight.sum(0), dbias.sum(0), None


def layernorm(x, weight, bias, *, eps):
    """y = (x - mean) / sqrt(variance + eps) · weight + bias.

    x [..., width], weight [width], bias [width] -> y [..., width].
    """
    return Layernorm.apply(x, weight, bias, eps)


@triton.jit
def layernorm_add_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, weight_ptr, bias_ptr, y_ptr, y_stride, center_ptr, rstd_ptr,
    rows, WIDTH: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = residual + (x - mean) / sqrt(variance + eps) · weight + bias."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    y_row = y_ptr + row * y_stride
    center = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        center += tl.sum(x, 1, keep_dims=True)
    center = center / WIDTH
    variance = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        apart = x - center
        variance += tl.sum(tl.where(inside, apart * apart, 0.0), 1, keep_dims=True)
    variance = variance / WIDTH
    rstd = tl.rsqrt(variance + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + col, mask=there, other=0.0).to(tl.float32)
        apart = x - center
        y = residual + rstd * weight * apart + bias
        tl.store(y_row + col, y, mask=inside)
    tl.store(center_ptr + row, center, mask=live)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def layernorm_add_backward(
    x_ptr, x_stride, weight_ptr, center_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr, dbias_ptr,
    rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of layernorm_add."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    dbias_sums = dbias_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dbias = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        center = tl.load(center_ptr + row, mask=live, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        dcenter = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = x - center
            drstd += tl.sum(apart * t1, 1, keep_dims=True)
            dcenter += tl.sum(t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = x - center
            dx = rstd * (t1 - drstd / WIDTH * rstd * rstd * apart - dcenter / WIDTH)
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * apart * dy, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
            dbias_tile = tl.sum(dy, 0, keep_dims=True)
            dbias = add_columns(dbias, dbias_tile, dbias_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)
        tl.store(dbias_sums + col, dbias, mask=col < WIDTH)


class LayernormAdd(torch.autograd.Function):
    """y = residual + (x - mean) / sqrt(variance + eps) · weight + bias."""

    @staticmethod
    def forward(ctx, x, residual, weight, bias, eps):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        y = rows.empty(width)
        center = rows.empty(1, torch.float32)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        layernorm_add_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), vector(weight, width),
            vector(bias, width), y, width, center, rstd, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, weight, center, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, center, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        dbias = rows.zeros(fit.grid[0], width)
        layernorm_add_backward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), center, rstd, dy_rows, dy_rows.stride(0), dx, width,
            dweight, dbias, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dy, dweight.sum(0), dbias.sum(0), None


def layernorm_add(x, residual, weight, bias, *, eps):
    """y = residual + (x - mean) / sqrt(variance + eps) · weight + bias.

    x [..., width], residual [..., width], weight [width], bias [width] -> y [..., width].
    """
    return LayernormAdd.apply(x, residual, weight, bias, eps)


@triton.jit
def layernorm_e4m3_block_forward(
    x_ptr, x_stride, weight_ptr, bias_ptr, y_ptr, y_stride, y_scale_ptr, center_ptr, rstd_ptr, rows,
    WIDTH: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = (x - mean) / sqrt(variance + eps) · weight + bias, in E4M3 with a factor for each 128 columns."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    y_scale_row = y_scale_ptr + row * tl.cdiv(WIDTH, 128)
    center = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        center += tl.sum(x, 1, keep_dims=True)
    center = center / WIDTH
    variance = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        apart = x - center
        variance += tl.sum(tl.where(inside, apart * apart, 0.0), 1, keep_dims=True)
    variance = variance / WIDTH
    rstd = tl.rsqrt(variance + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + col, mask=there, other=0.0).to(tl.float32)
        apart = x - center
        y = rstd * weight * apart + bias
        quantized, scale = to_e4m3_blocks(y, inside, ROWS, BLOCK)
        tl.store(y_row + col, quantized, mask=inside)
        block = start // 128 + tl.arange(0, BLOCK // 128)[None, :]
        tl.store(y_scale_row + block, scale, mask=live & (block < tl.cdiv(WIDTH, 128)))
    tl.store(center_ptr + row, center, mask=live)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def layernorm_e4m3_block_backward(
    x_ptr, x_stride, weight_ptr, center_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr, dbias_ptr,
    rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of layernorm_e4m3_block."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    dbias_sums = dbias_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dbias = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        center = tl.load(center_ptr + row, mask=live, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        dcenter = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = x - center
            drstd += tl.sum(apart * t1, 1, keep_dims=True)
            dcenter += tl.sum(t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = x - center
            dx = rstd * (t1 - drstd / WIDTH * rstd * rstd * apart - dcenter / WIDTH)
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * apart * dy, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
            dbias_tile = tl.sum(dy, 0, keep_dims=True)
            dbias = add_columns(dbias, dbias_tile, dbias_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)
        tl.store(dbias_sums + col, dbias, mask=col < WIDTH)


class LayernormE4m3Block(torch.autograd.Function):
    """y = (x - mean) / sqrt(variance + eps) · weight + bias, in E4M3 with a factor for each 128 columns."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        y = rows.empty(width, torch.float8_e4m3fn)
        y_scale = rows.empty(triton.cdiv(width, 128), torch.float32)
        center = rows.empty(1, torch.float32)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192, least=128)
        layernorm_e4m3_block_forward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), vector(bias, width), y, width, y_scale, center, rstd,
            rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, weight, center, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(y, y_scale)
        return y, y_scale, rows.carrier(width)

    @staticmethod
    @once_differentiable
    def backward(ctx, y_unused, y_scale_unused, dy):
        x, weight, center, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        dbias = rows.zeros(fit.grid[0], width)
        layernorm_e4m3_block_backward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), center, rstd, dy_rows, dy_rows.stride(0), dx, width,
            dweight, dbias, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dweight.sum(0), dbias.sum(0), None


def layernorm_e4m3_block(x, weight, bias, *, eps):
    """y = (x - mean) / sqrt(variance + eps) · weight + bias, in E4M3 with a factor for each 128 columns.

    x [..., width], weight [width], bias [width] -> y [..., width] as it is stored.
    """
    y, y_scale, dy = LayernormE4m3Block.apply(x, weight, bias, eps)
    return Stored(y, y_scale, dy, partial(layernorm, x, weight, bias, eps=eps))


@triton.jit
def layernorm_without_bias_forward(
    x_ptr, x_stride, weight_ptr, y_ptr, y_stride, center_ptr, rstd_ptr, rows, WIDTH: tl.constexpr,
    eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = (x - mean) / sqrt(variance + eps) · weight."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    center = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        center += tl.sum(x, 1, keep_dims=True)
    center = center / WIDTH
    variance = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        apart = x - center
        variance += tl.sum(tl.where(inside, apart * apart, 0.0), 1, keep_dims=True)
    variance = variance / WIDTH
    rstd = tl.rsqrt(variance + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        apart = x - center
        y = rstd * weight * apart
        tl.store(y_row + col, y, mask=inside)
    tl.store(center_ptr + row, center, mask=live)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def layernorm_without_bias_backward(
    x_ptr, x_stride, weight_ptr, center_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of layernorm_without_bias."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        center = tl.load(center_ptr + row, mask=live, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        dcenter = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = x - center
            drstd += tl.sum(apart * t1, 1, keep_dims=True)
            dcenter += tl.sum(t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = x - center
            dx = rstd * (t1 - drstd / WIDTH * rstd * rstd * apart - dcenter / WIDTH)
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * apart * dy, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class LayernormWithoutBias(torch.autograd.Function):
    """y = (x - mean) / sqrt(variance + eps) · weight."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        y = rows.empty(width)
        center = rows.empty(1, torch.float32)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        layernorm_without_bias_forward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), y, width, center, rstd, rows.count, WIDTH=width,
            eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, weight, center, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, center, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        layernorm_without_bias_backward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), center, rstd, dy_rows, dy_rows.stride(0), dx, width,
            dweight, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dweight.sum(0), None


def layernorm_without_bias(x, weight, *, eps):
    """y = (x - mean) / sqrt(variance + eps) · weight.

    x [..., width], weight [width] -> y [..., width].
    """
    return LayernormWithoutBias.apply(x, weight, eps)


@triton.jit
def layernorm_without_bias_add_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, weight_ptr, y_ptr, y_stride, center_ptr, rstd_ptr, rows,
    WIDTH: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = residual + (x - mean) / sqrt(variance + eps) · weight."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    y_row = y_ptr + row * y_stride
    center = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        center += tl.sum(x, 1, keep_dims=True)
    center = center / WIDTH
    variance = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        apart = x - center
        variance += tl.sum(tl.where(inside, apart * apart, 0.0), 1, keep_dims=True)
    variance = variance / WIDTH
    rstd = tl.rsqrt(variance + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        apart = x - center
        y = residual + rstd * weight * apart
        tl.store(y_row + col, y, mask=inside)
    tl.store(center_ptr + row, center, mask=live)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def layernorm_without_bias_add_backward(
    x_ptr, x_stride, weight_ptr, center_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of layernorm_without_bias_add."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        center = tl.load(center_ptr + row, mask=live, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        dcenter = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = x - center
            drstd += tl.sum(apart * t1, 1, keep_dims=True)
            dcenter += tl.sum(t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = x - center
            dx = rstd * (t1 - drstd / WIDTH * rstd * rstd * apart - dcenter / WIDTH)
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * apart * dy, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class LayernormWithoutBiasAdd(torch.autograd.Function):
    """y = residual + (x - mean) / sqrt(variance + eps) · weight."""

    @staticmethod
    def forward(ctx, x, residual, weight, eps):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        y = rows.empty(width)
        center = rows.empty(1, torch.float32)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        layernorm_without_bias_add_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), vector(weight, width), y, width,
            center, rstd, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, weight, center, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, center, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        layernorm_without_bias_add_backward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), center, rstd, dy_rows, dy_rows.stride(0), dx, width,
            dweight, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dy, dweight.sum(0), None


def layernorm_without_bias_add(x, residual, weight, *, eps):
    """y = residual + (x - mean) / sqrt(variance + eps) · weight.

    x [..., width], residual [..., width], weight [width] -> y [..., width].
    """
    return LayernormWithoutBiasAdd.apply(x, residual, weight, eps)


@triton.jit
def plain_rmsnorm_forward(
    x_ptr, x_stride, y_ptr, y_stride, rstd_ptr, rows, WIDTH: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x²) + eps)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        square += tl.sum(x * x, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        y = rstd * x
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def plain_rmsnorm_backward(
    x_ptr, x_stride, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of plain_rmsnorm."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
    drstd = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        drstd += tl.sum(dy * x, 1, keep_dims=True)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        dx = rstd * (dy - drstd / WIDTH * rstd * rstd * x)
        tl.store(dx_row + col, dx, mask=inside)


class PlainRmsnorm(torch.autograd.Function):
    """y = x / sqrt(mean(x²) + eps)."""

    @staticmethod
    def forward(ctx, x, eps):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        y = rows.empty(width)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=16384)
        plain_rmsnorm_forward[fit.grid](
            x_rows, x_rows.stride(0), y, width, rstd, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=16384)
        plain_rmsnorm_backward[fit.grid](
            x_rows, x_rows.stride(0), rstd, dy_rows, dy_rows.stride(0), dx, width, rows.count, WIDTH=width,
            **fit.options,
        )
        return dx, None


def plain_rmsnorm(x, *, eps):
    """y = x / sqrt(mean(x²) + eps).

    x [..., width] -> y [..., width].
    """
    return PlainRmsnorm.apply(x, eps)


@triton.jit
def plain_rmsnorm_add_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, y_ptr, y_stride, rstd_ptr, rows, WIDTH: tl.constexpr,
    eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = residual + x / sqrt(mean(x²) + eps)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    y_row = y_ptr + row * y_stride
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        square += tl.sum(x * x, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        y = residual + rstd * x
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def plain_rmsnorm_add_backward(
    x_ptr, x_stride, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of plain_rmsnorm_add."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
    drstd = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        drstd += tl.sum(dy * x, 1, keep_dims=True)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        dx = rstd * (dy - drstd / WIDTH * rstd * rstd * x)
        tl.store(dx_row + col, dx, mask=inside)


class PlainRmsnormAdd(torch.autograd.Function):
    """y = residual + x / sqrt(mean(x²) + eps)."""

    @staticmethod
    def forward(ctx, x, residual, eps):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        y = rows.empty(width)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=16384)
        plain_rmsnorm_add_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), y, width, rstd, rows.count,
            WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=16384)
        plain_rmsnorm_add_backward[fit.grid](
            x_rows, x_rows.stride(0), rstd, dy_rows, dy_rows.stride(0), dx, width, rows.count, WIDTH=width,
            **fit.options,
        )
        return dx, dy, None


def plain_rmsnorm_add(x, residual, *, eps):
    """y = residual + x / sqrt(mean(x²) + eps).

    x [..., width], residual [..., width] -> y [..., width].
    """
    return PlainRmsnormAdd.apply(x, residual, eps)


@triton.jit
def relu_forward(
    x_ptr, x_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = relu(x)."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    y = at_least(x, 0.0)
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def relu_backward(
    x_ptr, x_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of relu."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    dx = dy * tl.where(x > 0.0, 1.0, 0.0)
    tl.store(dx_row + col, dx, mask=inside)


class Relu(torch.autograd.Function):
    """y = relu(x)."""

    @staticmethod
    def forward(ctx, x):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        relu_forward[fit.grid](
            x_rows, x_rows.stride(0), y, width, rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(x)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        relu_backward[fit.grid](
            x_rows, x_rows.stride(0), dy_rows, dy_rows.stride(0), dx, width, rows.count, WIDTH=width, **fit.options,
        )
        return dx


def relu(x):
    """y = relu(x).

    x [..., width] -> y [..., width].
    """
    return Relu.apply(x)


@triton.jit
def relu2_forward(
    x_ptr, x_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = relu2(x)."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    relu_x = at_least(x, 0.0)
    y = relu_x * relu_x
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def relu2_backward(
    x_ptr, x_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of relu2."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    dx = 2 * at_least(x, 0.0) * dy
    tl.store(dx_row + col, dx, mask=inside)


class Relu2(torch.autograd.Function):
    """y = relu2(x)."""

    @staticmethod
    def forward(ctx, x):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        relu2_forward[fit.grid](
            x_rows, x_rows.stride(0), y, width, rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(x)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        relu2_backward[fit.grid](
            x_rows, x_rows.stride(0), dy_rows, dy_rows.stride(0), dx, width, rows.count, WIDTH=width, **fit.options,
        )
        return dx


def relu2(x):
    """y = relu2(x).

    x [..., width] -> y [..., width].
    """
    return Relu2.apply(x)


@triton.jit
def relu2_gate_forward(
    x_ptr, x_stride, gate_ptr, gate_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x · relu2(gate)."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    gate_row = gate_ptr + row * gate_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
    relu_gate = at_least(gate, 0.0)
    y = relu_gate * relu_gate * x
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def relu2_gate_backward(
    x_ptr, x_stride, gate_ptr, gate_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, dgate_ptr, dgate_stride, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of relu2_gate."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    gate_row = gate_ptr + row * gate_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    dgate_row = dgate_ptr + row * dgate_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    relu_gate = at_least(gate, 0.0)
    dx = dy * relu_gate * relu_gate
    tl.store(dx_row + col, dx, mask=inside)
    dgate = 2 * dy * relu_gate * x
    tl.store(dgate_row + col, dgate, mask=inside)


class Relu2Gate(torch.autograd.Function):
    """y = x · relu2(gate)."""

    @staticmethod
    def forward(ctx, x, gate):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        gate_rows = rows.matrix(gate, width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        relu2_gate_forward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), y, width, rows.count, WIDTH=width,
            **fit.options,
        )
        ctx.save_for_backward(x, gate)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, gate = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        gate_rows = rows.matrix(gate, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        dgate = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        relu2_gate_backward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), dy_rows, dy_rows.stride(0), dx, width, dgate,
            width, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dgate


def relu2_gate(x, gate):
    """y = x · relu2(gate).

    x [..., width], gate [..., width] -> y [..., width].
    """
    return Relu2Gate.apply(x, gate)


@triton.jit
def relu2_glu_forward(
    gate_up_ptr, gate_up_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = relu2(gate) · up."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
    relu_gate = at_least(gate, 0.0)
    y = relu_gate * relu_gate * up
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def relu2_glu_backward(
    gate_up_ptr, gate_up_stride, dy_ptr, dy_stride, dgate_up_ptr, dgate_up_stride, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of relu2_glu."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    dy_row = dy_ptr + row * dy_stride
    dgate_up_row = dgate_up_ptr + row * dgate_up_stride
    inside = live & there
    gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    relu_gate = at_least(gate, 0.0)
    dgate = 2 * dy * relu_gate * up
    dup = dy * relu_gate * relu_gate
    tl.store(dgate_up_row + col, dgate, mask=inside)
    tl.store(dgate_up_row + WIDTH + col, dup, mask=inside)


class Relu2Glu(torch.autograd.Function):
    """y = relu2(gate) · up."""

    @staticmethod
    def forward(ctx, gate_up):
        rows = Rows.of(gate_up)
        width = gate_up.shape[-1] // 2
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        relu2_glu_forward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), y, width, rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(gate_up)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate_up, = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        dy_rows = rows.matrix(dy, width)
        dgate_up = rows.empty(2 * width)
        fit = tile(rows.count, width, columns=True)
        relu2_glu_backward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), dy_rows, dy_rows.stride(0), dgate_up, 2 * width, rows.count,
            WIDTH=width, **fit.options,
        )
        return dgate_up


def relu2_glu(gate_up):
    """y = relu2(gate) · up.

    gate_up [..., 2 width] -> y [..., width].
    """
    return Relu2Glu.apply(gate_up)


@triton.jit
def relu2_glu_int8_row_forward(
    gate_up_ptr, gate_up_stride, y_ptr, y_stride, y_scale_ptr, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = relu2(gate) · up, in 8 bits with a factor for each row."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    y_row = y_ptr + row * y_stride
    y_amax = tl.full([ROWS, 1], float("-inf"), tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
        relu_gate = at_least(gate, 0.0)
        y = relu_gate * relu_gate * up
        y_amax = tl.maximum(y_amax, tl.max(tl.where(inside, magnitude(y), float("-inf")), 1, keep_dims=True))
    y_scale = int8_factor(y_amax)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
        relu_gate = at_least(gate, 0.0)
        y = relu_gate * relu_gate * up
        tl.store(y_row + col, to_int8(y, y_scale), mask=inside)
    tl.store(y_scale_ptr + row, y_scale, mask=live)


@triton.jit
def relu2_glu_int8_row_backward(
    gate_up_ptr, gate_up_stride, dy_ptr, dy_stride, dgate_up_ptr, dgate_up_stride, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of relu2_glu_int8_row."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    dy_row = dy_ptr + row * dy_stride
    dgate_up_row = dgate_up_ptr + row * dgate_up_stride
    inside = live & there
    gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    relu_gate = at_least(gate, 0.0)
    dgate = 2 * dy * relu_gate * up
    dup = dy * relu_gate * relu_gate
    tl.store(dgate_up_row + col, dgate, mask=inside)
    tl.store(dgate_up_row + WIDTH + col, dup, mask=inside)


class Relu2GluInt8Row(torch.autograd.Function):
    """y = relu2(gate) · up, in 8 bits with a factor for each row."""

    @staticmethod
    def forward(ctx, gate_up):
        rows = Rows.of(gate_up)
        width = gate_up.shape[-1] // 2
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        y = rows.empty(width, torch.int8)
        y_scale = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        relu2_glu_int8_row_forward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), y, width, y_scale, rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(gate_up)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(y, y_scale)
        return y, y_scale, rows.carrier(width)

    @staticmethod
    @once_differentiable
    def backward(ctx, y_unused, y_scale_unused, dy):
        gate_up, = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        dy_rows = rows.matrix(dy, width)
        dgate_up = rows.empty(2 * width)
        fit = tile(rows.count, width, columns=True)
        relu2_glu_int8_row_backward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), dy_rows, dy_rows.stride(0), dgate_up, 2 * width, rows.count,
            WIDTH=width, **fit.options,
        )
        return dgate_up


def relu2_glu_int8_row(gate_up):
    """y = relu2(gate) · up, in 8 bits with a factor for each row.

    gate_up [..., 2 width] -> y [..., width] as it is stored.
    """
    y, y_scale, dy = Relu2GluInt8Row.apply(gate_up)
    return Stored(y, y_scale, dy, partial(relu2_glu, gate_up))


@triton.jit
def relu_gate_forward(
    x_ptr, x_stride, gate_ptr, gate_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x · relu(gate)."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    gate_row = gate_ptr + row * gate_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
    y = at_least(gate, 0.0) * x
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def relu_gate_backward(
    x_ptr, x_stride, gate_ptr, gate_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, dgate_ptr, dgate_stride, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of relu_gate."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    gate_row = gate_ptr + row * gate_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    dgate_row = dgate_ptr + row * dgate_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    dx = at_least(gate, 0.0) * dy
    tl.store(dx_row + col, dx, mask=inside)
    dgate = dy * tl.where(gate > 0.0, 1.0, 0.0) * x
    tl.store(dgate_row + col, dgate, mask=inside)


class ReluGate(torch.autograd.Function):
    """y = x · relu(gate)."""

    @staticmethod
    def forward(ctx, x, gate):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        gate_rows = rows.matrix(gate, width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        relu_gate_forward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), y, width, rows.count, WIDTH=width,
            **fit.options,
        )
        ctx.save_for_backward(x, gate)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, gate = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        gate_rows = rows.matrix(gate, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        dgate = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        relu_gate_backward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), dy_rows, dy_rows.stride(0), dx, width, dgate,
            width, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dgate


def relu_gate(x, gate):
    """y = x · relu(gate).

    x [..., width], gate [..., width] -> y [..., width].
    """
    return ReluGate.apply(x, gate)


@triton.jit
def relu_glu_forward(
    gate_up_ptr, gate_up_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = relu(gate) · up."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
    y = at_least(gate, 0.0) * up
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def relu_glu_backward(
    gate_up_ptr, gate_up_stride, dy_ptr, dy_stride, dgate_up_ptr, dgate_up_stride, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of relu_glu."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    dy_row = dy_ptr + row * dy_stride
    dgate_up_row = dgate_up_ptr + row * dgate_up_stride
    inside = live & there
    gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    dgate = dy * tl.where(gate > 0.0, 1.0, 0.0) * up
    dup = at_least(gate, 0.0) * dy
    tl.store(dgate_up_row + col, dgate, mask=inside)
    tl.store(dgate_up_row + WIDTH + col, dup, mask=inside)


class ReluGlu(torch.autograd.Function):
    """y = relu(gate) · up."""

    @staticmethod
    def forward(ctx, gate_up):
        rows = Rows.of(gate_up)
        width = gate_up.shape[-1] // 2
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        relu_glu_forward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), y, width, rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(gate_up)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate_up, = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        dy_rows = rows.matrix(dy, width)
        dgate_up = rows.empty(2 * width)
        fit = tile(rows.count, width, columns=True)
        relu_glu_backward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), dy_rows, dy_rows.stride(0), dgate_up, 2 * width, rows.count,
            WIDTH=width, **fit.options,
        )
        return dgate_up


def relu_glu(gate_up):
    """y = relu(gate) · up.

    gate_up [..., 2 width] -> y [..., width].
    """
    return ReluGlu.apply(gate_up)


@triton.jit
def rmsnorm_forward(
    x_ptr, x_stride, weight_ptr, y_ptr, y_stride, rstd_ptr, rows, WIDTH: tl.constexpr, eps: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x²) + eps) · weight."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        square += tl.sum(x * x, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        y = rstd * weight * x
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def rmsnorm_backward(
    x_ptr, x_stride, weight_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of rmsnorm."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            drstd += tl.sum(t1 * x, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            dx = rstd * (t1 - drstd / WIDTH * rstd * rstd * x)
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * dy * x, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class Rmsnorm(torch.autograd.Function):
    """y = x / sqrt(mean(x²) + eps) · weight."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        y = rows.empty(width)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=16384)
        rmsnorm_forward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), y, width, rstd, rows.count, WIDTH=width, eps=eps,
            **fit.options,
        )
        ctx.save_for_backward(x, weight, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        rmsnorm_backward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), rstd, dy_rows, dy_rows.stride(0), dx, width, dweight,
            rows.count, WIDTH=width, **fit.options,
        )
        return dx, dweight.sum(0), None


def rmsnorm(x, weight, *, eps):
    """y = x / sqrt(mean(x²) + eps) · weight.

    x [..., width], weight [width] -> y [..., width].
    """
    return Rmsnorm.apply(x, weight, eps)


@triton.jit
def rmsnorm_add_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, weight_ptr, y_ptr, y_stride, rstd_ptr, rows,
    WIDTH: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = residual + x / sqrt(mean(x²) + eps) · weight."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    y_row = y_ptr + row * y_stride
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        square += tl.sum(x * x, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        y = residual + rstd * weight * x
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def rmsnorm_add_backward(
    x_ptr, x_stride, weight_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of rmsnorm_add."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            drstd += tl.sum(t1 * x, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            dx = rstd * (t1 - drstd / WIDTH * rstd * rstd * x)
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * dy * x, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class RmsnormAdd(torch.autograd.Function):
    """y = residual + x / sqrt(mean(x²) + eps) · weight."""

    @staticmethod
    def forward(ctx, x, residual, weight, eps):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        y = rows.empty(width)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        rmsnorm_add_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), vector(weight, width), y, width, rstd,
            rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, weight, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        rmsnorm_add_backward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), rstd, dy_rows, dy_rows.stride(0), dx, width, dweight,
            rows.count, WIDTH=width, **fit.options,
        )
        return dx, dy, dweight.sum(0), None


def rmsnorm_add(x, residual, weight, *, eps):
    """y = residual + x / sqrt(mean(x²) + eps) · weight.

    x [..., width], residual [..., width], weight [width] -> y [..., width].
    """
    return RmsnormAdd.apply(x, residual, weight, eps)


@triton.jit
def rmsnorm_e4m3_block_forward(
    x_ptr, x_stride, weight_ptr, y_ptr, y_stride, y_scale_ptr, rstd_ptr, rows, WIDTH: tl.constexpr,
    eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x²) + eps) · weight, in E4M3 with a factor for each 128 columns."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    y_scale_row = y_scale_ptr + row * tl.cdiv(WIDTH, 128)
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        square += tl.sum(x * x, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        y = rstd * weight * x
        quantized, scale = to_e4m3_blocks(y, inside, ROWS, BLOCK)
        tl.store(y_row + col, quantized, mask=inside)
        block = start // 128 + tl.arange(0, BLOCK // 128)[None, :]
        tl.store(y_scale_row + block, scale, mask=live & (block < tl.cdiv(WIDTH, 128)))
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def rmsnorm_e4m3_block_backward(
    x_ptr, x_stride, weight_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of rmsnorm_e4m3_block."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            drstd += tl.sum(t1 * x, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            dx = rstd * (t1 - drstd / WIDTH * rstd * rstd * x)
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * dy * x, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class RmsnormE4m3Block(torch.autograd.Function):
    """y = x / sqrt(mean(x²) + eps) · weight, in E4M3 with a factor for each 128 columns."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        y = rows.empty(width, torch.float8_e4m3fn)
        y_scale = rows.empty(triton.cdiv(width, 128), torch.float32)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=16384, least=128)
        rmsnorm_e4m3_block_forward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), y, width, y_scale, rstd, rows.count, WIDTH=width,
            eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, weight, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(y, y_scale)
        return y, y_scale, rows.carrier(width)

    @staticmethod
    @once_differentiable
    def backward(ctx, y_unused, y_scale_unused, dy):
        x, weight, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        rmsnorm_e4m3_block_backward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), rstd, dy_rows, dy_rows.stride(0), dx, width, dweight,
            rows.count, WIDTH=width, **fit.options,
        )
        return dx, dweight.sum(0), None


def rmsnorm_e4m3_block(x, weight, *, eps):
    """y = x / sqrt(mean(x²) + eps) · weight, in E4M3 with a factor for each 128 columns.

    x [..., width], weight [width] -> y [..., width] as it is stored.
    """
    y, y_scale, dy = RmsnormE4m3Block.apply(x, weight, eps)
    return Stored(y, y_scale, dy, partial(rmsnorm, x, weight, eps=eps))


@triton.jit
def rmsnorm_e4m3_row_forward(
    x_ptr, x_stride, weight_ptr, y_ptr, y_stride, y_scale_ptr, rstd_ptr, rows, WIDTH: tl.constexpr,
    eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x²) + eps) · weight, in E4M3 with a factor for each row."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        square += tl.sum(x * x, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    y_amax = tl.full([ROWS, 1], float("-inf"), tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        y = rstd * weight * x
        y_amax = tl.maximum(y_amax, tl.max(tl.where(inside, magnitude(y), float("-inf")), 1, keep_dims=True))
    y_scale = e4m3_factor(y_amax)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        y = rstd * weight * x
        tl.store(y_row + col, to_e4m3(y, y_scale), mask=inside)
    tl.store(y_scale_ptr + row, y_scale, mask=live)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def rmsnorm_e4m3_row_backward(
    x_ptr, x_stride, weight_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of rmsnorm_e4m3_row."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            drstd += tl.sum(t1 * x, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            dx = rstd * (t1 - drstd / WIDTH * rstd * rstd * x)
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * dy * x, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class RmsnormE4m3Row(torch.autograd.Function):
    """y = x / sqrt(mean(x²) + eps) · weight, in E4M3 with a factor for each row."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        y = rows.empty(width, torch.float8_e4m3fn)
        y_scale = rows.empty(1, torch.float32)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=16384)
        rmsnorm_e4m3_row_forward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), y, width, y_scale, rstd, rows.count, WIDTH=width,
            eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, weight, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(y, y_scale)
        return y, y_scale, rows.carrier(width)

    @staticmethod
    @once_differentiable
    def backward(ctx, y_unused, y_scale_unused, dy):
        x, weight, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        rmsnorm_e4m3_row_backward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), rstd, dy_rows, dy_rows.stride(0), dx, width, dweight,
            rows.count, WIDTH=width, **fit.options,
        )
        return dx, dweight.sum(0), None


def rmsnorm_e4m3_row(x, weight, *, eps):
    """y = x / sqrt(mean(x²) + eps) · weight, in E4M3 with a factor for each row.

    x [..., width], weight [width] -> y [..., width] as it is stored.
    """
    y, y_scale, dy = RmsnormE4m3Row.apply(x, weight, eps)
    return Stored(y, y_scale, dy, partial(rmsnorm, x, weight, eps=eps))


@triton.jit
def rmsnorm_gated_sigmoid_forward(
    x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, y_ptr, y_stride, rstd_ptr, step, rows, WIDTH: tl.constexpr,
    eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = rmsnorm(x) · weight · sigmoid(gate), the norm over each segment."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride + segment * step
    gate_row = gate_ptr + row * gate_stride + segment * step
    y_row = y_ptr + row * y_stride + segment * step
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        square += tl.sum(x * x, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + segment * WIDTH + col, mask=there, other=0.0).to(tl.float32)
        y = rstd * weight * tl.sigmoid(gate) * x
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row * segments + segment, rstd, mask=live)


@triton.jit
def rmsnorm_gated_sigmoid_backward(
    x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dgate_ptr,
    dgate_stride, dweight_ptr, step, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of rmsnorm_gated_sigmoid."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    dweight_sums = dweight_ptr + (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + segment) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride + segment * step
        gate_row = gate_ptr + row * gate_stride + segment * step
        dy_row = dy_ptr + row * dy_stride + segment * step
        dx_row = dx_ptr + row * dx_stride + segment * step
        dgate_row = dgate_ptr + row * dgate_stride + segment * step
        rstd = tl.load(rstd_ptr + row * segments + segment, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + segment * WIDTH + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            sigmoid_gate = tl.sigmoid(gate)
            t1 = dy * sigmoid_gate
            t2 = weight * t1
            t3 = t2 * x
            drstd += tl.sum(t3, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + segment * WIDTH + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            sigmoid_gate = tl.sigmoid(gate)
            t1 = dy * sigmoid_gate
            t2 = weight * t1
            t3 = t2 * x
            dx = rstd * (t2 - drstd / WIDTH * rstd * rstd * x)
            tl.store(dx_row + col, dx, mask=inside)
            dgate = rstd * (1 - sigmoid_gate) * t3
            tl.store(dgate_row + col, dgate, mask=inside)
            dweight_tile = tl.sum(rstd * t1 * x, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class RmsnormGatedSigmoid(torch.autograd.Function):
    """y = rmsnorm(x) · weight · sigmoid(gate), the norm over each segment."""

    @staticmethod
    def forward(ctx, x, gate, weight, eps, segments):
        rows = Rows.of(x)
        step = x.shape[-1] // segments
        width = step
        x_rows = rows.matrix(x, segments * step)
        gate_rows = rows.matrix(gate, segments * step)
        y = rows.empty(segments * step)
        rstd = rows.empty(segments, torch.float32)
        fit = tile(rows.count, width, limit=8192, segments=segments)
        rmsnorm_gated_sigmoid_forward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), vector(weight, segments * width), y,
            segments * step, rstd, step, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, gate, weight, rstd)
        ctx.rows, ctx.width, ctx.segments, ctx.step = rows, width, segments, step
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, gate, weight, rstd = ctx.saved_tensors
        rows, width, segments, step = ctx.rows, ctx.width, ctx.segments, ctx.step
        x_rows = rows.matrix(x, segments * step)
        gate_rows = rows.matrix(gate, segments * step)
        dy_rows = rows.matrix(dy, segments * step)
        dx = rows.empty(segments * step)
        dgate = rows.empty(segments * step)
        fit = tile(rows.count, width, limit=4096, segments=segments, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], segments, width)
        rmsnorm_gated_sigmoid_backward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), vector(weight, segments * width), rstd,
            dy_rows, dy_rows.stride(0), dx, segments * step, dgate, segments * step, dweight, step, rows.count,
            WIDTH=width, **fit.options,
        )
        return dx, dgate, dweight.sum(0).flatten(), None, None


def rmsnorm_gated_sigmoid(x, gate, weight, *, eps, segments):
    """y = rmsnorm(x) · weight · sigmoid(gate), the norm over each segment.

    x [..., segments width], gate [..., segments width], weight [segments width] -> y [..., segments width].
    """
    return RmsnormGatedSigmoid.apply(x, gate, weight, eps, segments)


@triton.jit
def rmsnorm_gated_silu_forward(
    x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, y_ptr, y_stride, rstd_ptr, step, rows, WIDTH: tl.constexpr,
    eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = rmsnorm(x) · weight · silu(gate), the norm over each segment."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride + segment * step
    gate_row = gate_ptr + row * gate_stride + segment * step
    y_row = y_ptr + row * y_stride + segment * step
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        square += tl.sum(x * x, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + segment * WIDTH + col, mask=there, other=0.0).to(tl.float32)
        y = rstd * weight * gate * tl.sigmoid(gate) * x
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row * segments + segment, rstd, mask=live)


@triton.jit
def rmsnorm_gated_silu_backward(
    x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dgate_ptr,
    dgate_stride, dweight_ptr, step, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of rmsnorm_gated_silu."""
    segment = tl.program_id(1)
    segments = tl.num_programs(1)
    dweight_sums = dweight_ptr + (tl.program_id(0).to(tl.int64) * tl.num_programs(1) + segment) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride + segment * step
        gate_row = gate_ptr + row * gate_stride + segment * step
        dy_row = dy_ptr + row * dy_stride + segment * step
        dx_row = dx_ptr + row * dx_stride + segment * step
        dgate_row = dgate_ptr + row * dgate_stride + segment * step
        rstd = tl.load(rstd_ptr + row * segments + segment, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + segment * WIDTH + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            sigmoid_gate = tl.sigmoid(gate)
            t1 = dy * gate * sigmoid_gate
            t2 = weight * t1
            drstd += tl.sum(t2 * x, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + segment * WIDTH + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            sigmoid_gate = tl.sigmoid(gate)
            t1 = dy * gate * sigmoid_gate
            t2 = weight * t1
            t3 = rstd * x
            dx = rstd * (t2 - drstd / WIDTH * rstd * rstd * x)
            tl.store(dx_row + col, dx, mask=inside)
            dgate = weight * ((1 - sigmoid_gate) * gate + 1) * dy * sigmoid_gate * t3
            tl.store(dgate_row + col, dgate, mask=inside)
            dweight_tile = tl.sum(t1 * t3, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class RmsnormGatedSilu(torch.autograd.Function):
    """y = rmsnorm(x) · weight · silu(gate), the norm over each segment."""

    @staticmethod
    def forward(ctx, x, gate, weight, eps, segments):
        rows = Rows.of(x)
        step = x.shape[-1] // segments
        width = step
        x_rows = rows.matrix(x, segments * step)
        gate_rows = rows.matrix(gate, segments * step)
        y = rows.empty(segments * step)
        rstd = rows.empty(segments, torch.float32)
        fit = tile(rows.count, width, limit=8192, segments=segments)
        rmsnorm_gated_silu_forward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), vector(weight, segments * width), y,
            segments * step, rstd, step, rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, gate, weight, rstd)
        ctx.rows, ctx.width, ctx.segments, ctx.step = rows, width, segments, step
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, gate, weight, rstd = ctx.saved_tensors
        rows, width, segments, step = ctx.rows, ctx.width, ctx.segments, ctx.step
        x_rows = rows.matrix(x, segments * step)
        gate_rows = rows.matrix(gate, segments * step)
        dy_rows = rows.matrix(dy, segments * step)
        dx = rows.empty(segments * step)
        dgate = rows.empty(segments * step)
        fit = tile(rows.count, width, limit=4096, segments=segments, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], segments, width)
        rmsnorm_gated_silu_backward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), vector(weight, segments * width), rstd,
            dy_rows, dy_rows.stride(0), dx, segments * step, dgate, segments * step, dweight, step, rows.count,
            WIDTH=width, **fit.options,
        )
        return dx, dgate, dweight.sum(0).flatten(), None, None


def rmsnorm_gated_silu(x, gate, weight, *, eps, segments):
    """y = rmsnorm(x) · weight · silu(gate), the norm over each segment.

    x [..., segments width], gate [..., segments width], weight [segments width] -> y [..., segments width].
    """
    return RmsnormGatedSilu.apply(x, gate, weight, eps, segments)


@triton.jit
def rmsnorm_int8_row_forward(
    x_ptr, x_stride, weight_ptr, y_ptr, y_stride, y_scale_ptr, rstd_ptr, rows, WIDTH: tl.constexpr,
    eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x²) + eps) · weight, in 8 bits with a factor for each row."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        square += tl.sum(x * x, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    y_amax = tl.full([ROWS, 1], float("-inf"), tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        y = rstd * weight * x
        y_amax = tl.maximum(y_amax, tl.max(tl.where(inside, magnitude(y), float("-inf")), 1, keep_dims=True))
    y_scale = int8_factor(y_amax)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        y = rstd * weight * x
        tl.store(y_row + col, to_int8(y, y_scale), mask=inside)
    tl.store(y_scale_ptr + row, y_scale, mask=live)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def rmsnorm_int8_row_backward(
    x_ptr, x_stride, weight_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of rmsnorm_int8_row."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            drstd += tl.sum(t1 * x, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            dx = rstd * (t1 - drstd / WIDTH * rstd * rstd * x)
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * dy * x, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class RmsnormInt8Row(torch.autograd.Function):
    """y = x / sqrt(mean(x²) + eps) · weight, in 8 bits with a factor for each row."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        y = rows.empty(width, torch.int8)
        y_scale = rows.empty(1, torch.float32)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=16384)
        rmsnorm_int8_row_forward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), y, width, y_scale, rstd, rows.count, WIDTH=width,
            eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, weight, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(y, y_scale)
        return y, y_scale, rows.carrier(width)

    @staticmethod
    @once_differentiable
    def backward(ctx, y_unused, y_scale_unused, dy):
        x, weight, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        rmsnorm_int8_row_backward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), rstd, dy_rows, dy_rows.stride(0), dx, width, dweight,
            rows.count, WIDTH=width, **fit.options,
        )
        return dx, dweight.sum(0), None


def rmsnorm_int8_row(x, weight, *, eps):
    """y = x / sqrt(mean(x²) + eps) · weight, in 8 bits with a factor for each row.

    x [..., width], weight [width] -> y [..., width] as it is stored.
    """
    y, y_scale, dy = RmsnormInt8Row.apply(x, weight, eps)
    return Stored(y, y_scale, dy, partial(rmsnorm, x, weight, eps=eps))


@triton.jit
def rope_halves_forward(
    x_ptr, x_stride, cos_ptr, cos_stride, sin_ptr, sin_stride, y_ptr, y_stride, step, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """Pairs (i, i + width) of each segment, a head, turned by cos and sin."""
    segment = tl.program_id(1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride + segment * step
    cos_row = cos_ptr + row * cos_stride
    sin_row = sin_ptr + row * sin_stride
    y_row = y_ptr + row * y_stride + segment * step
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x_first = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        x_second = tl.load(x_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
        cos = tl.load(cos_row + col, mask=inside, other=0.0).to(tl.float32)
        sin = tl.load(sin_row + col, mask=inside, other=0.0).to(tl.float32)
        y_first = cos * x_first - sin * x_second
        y_second = cos * x_second + sin * x_first
        tl.store(y_row + col, y_first, mask=inside)
        tl.store(y_row + WIDTH + col, y_second, mask=inside)


@triton.jit
def rope_halves_backward(
    cos_ptr, cos_stride, sin_ptr, sin_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, step, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of rope_halves."""
    segment = tl.program_id(1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    cos_row = cos_ptr + row * cos_stride
    sin_row = sin_ptr + row * sin_stride
    dy_row = dy_ptr + row * dy_stride + segment * step
    dx_row = dx_ptr + row * dx_stride + segment * step
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        cos = tl.load(cos_row + col, mask=inside, other=0.0).to(tl.float32)
        sin = tl.load(sin_row + col, mask=inside, other=0.0).to(tl.float32)
        dy_first = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        dy_second = tl.load(dy_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
        dx_first = cos * dy_first + dy_second * sin
        dx_second = cos * dy_second - dy_first * sin
        tl.store(dx_row + col, dx_first, mask=inside)
        tl.store(dx_row + WIDTH + col, dx_second, mask=inside)


class RopeHalves(torch.autograd.Function):
    """Pairs (i, i + width) of each segment, a head, turned by cos and sin."""

    @staticmethod
    def forward(ctx, x, cos, sin, segments):
        rows = Rows.of(x)
        step = x.shape[-1] // segments
        width = cos.shape[-1]
        x_rows = rows.matrix(x, segments * step)
        cos_rows = rows.matrix(cos, width)
        sin_rows = rows.matrix(sin, width)
        y = rows.handed_through(x_rows, segments, 2 * width)
        fit = tile(rows.count, width, limit=8192, segments=segments)
        rope_halves_forward[fit.grid](
            x_rows, x_rows.stride(0), cos_rows, cos_rows.stride(0), sin_rows, sin_rows.stride(0), y,
            segments * step, step, rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(cos, sin)
        ctx.rows, ctx.width, ctx.segments, ctx.step = rows, width, segments, step
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        cos, sin = ctx.saved_tensors
        rows, width, segments, step = ctx.rows, ctx.width, ctx.segments, ctx.step
        cos_rows = rows.matrix(cos, width)
        sin_rows = rows.matrix(sin, width)
        dy_rows = rows.matrix(dy, segments * step)
        dx = rows.handed_through(dy_rows, segments, 2 * width)
        fit = tile(rows.count, width, limit=8192, segments=segments)
        rope_halves_backward[fit.grid](
            cos_rows, cos_rows.stride(0), sin_rows, sin_rows.stride(0), dy_rows, dy_rows.stride(0), dx,
            segments * step, step, rows.count, WIDTH=width, **fit.options,
        )
        return dx, None, None, None


def rope_halves(x, cos, sin, *, segments):
    """Pairs (i, i + width) of each segment, a head, turned by cos and sin.

    x [..., segments (2 width or more)], cos [..., width], sin [..., width] -> y [..., segments (2 width or
    more)].
    """
    return RopeHalves.apply(x, cos, sin, segments)


@triton.jit
def rope_pairs_forward(
    x_ptr, x_stride, cos_ptr, cos_stride, sin_ptr, sin_stride, y_ptr, y_stride, step, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """Pairs (2 i, 2 i + 1) of each segment, a head, turned by cos and sin."""
    segment = tl.program_id(1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride + segment * step
    cos_row = cos_ptr + row * cos_stride
    sin_row = sin_ptr + row * sin_stride
    y_row = y_ptr + row * y_stride + segment * step
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x_first, x_second = load_pairs(x_row, start, WIDTH, live, ROWS, BLOCK)
        cos = tl.load(cos_row + col, mask=inside, other=0.0).to(tl.float32)
        sin = tl.load(sin_row + col, mask=inside, other=0.0).to(tl.float32)
        y_first = cos * x_first - sin * x_second
        y_second = cos * x_second + sin * x_first
        store_pairs(y_row, y_first, y_second, start, WIDTH, live, ROWS, BLOCK)


@triton.jit
def rope_pairs_backward(
    cos_ptr, cos_stride, sin_ptr, sin_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, step, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of rope_pairs."""
    segment = tl.program_id(1)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    cos_row = cos_ptr + row * cos_stride
    sin_row = sin_ptr + row * sin_stride
    dy_row = dy_ptr + row * dy_stride + segment * step
    dx_row = dx_ptr + row * dx_stride + segment * step
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        cos = tl.load(cos_row + col, mask=inside, other=0.0).to(tl.float32)
        sin = tl.load(sin_row + col, mask=inside, other=0.0).to(tl.float32)
        dy_first, dy_second = load_pairs(dy_row, start, WIDTH, live, ROWS, BLOCK)
        dx_first = cos * dy_first + dy_second * sin
        dx_second = cos * dy_second - dy_first * sin
        store_pairs(dx_row, dx_first, dx_second, start, WIDTH, live, ROWS, BLOCK)


class RopePairs(torch.autograd.Function):
    """Pairs (2 i, 2 i + 1) of each segment, a head, turned by cos and sin."""

    @staticmethod
    def forward(ctx, x, cos, sin, segments):
        rows = Rows.of(x)
        step = x.shape[-1] // segments
        width = cos.shape[-1]
        x_rows = rows.matrix(x, segments * step)
        cos_rows = rows.matrix(cos, width)
        sin_rows = rows.matrix(sin, width)
        y = rows.handed_through(x_rows, segments, 2 * width)
        fit = tile(rows.count, width, limit=8192, segments=segments)
        rope_pairs_forward[fit.grid](
            x_rows, x_rows.stride(0), cos_rows, cos_rows.stride(0), sin_rows, sin_rows.stride(0), y,
            segments * step, step, rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(cos, sin)
        ctx.rows, ctx.width, ctx.segments, ctx.step = rows, width, segments, step
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        cos, sin = ctx.saved_tensors
        rows, width, segments, step = ctx.rows, ctx.width, ctx.segments, ctx.step
        cos_rows = rows.matrix(cos, width)
        sin_rows = rows.matrix(sin, width)
        dy_rows = rows.matrix(dy, segments * step)
        dx = rows.handed_through(dy_rows, segments, 2 * width)
        fit = tile(rows.count, width, limit=8192, segments=segments)
        rope_pairs_backward[fit.grid](
            cos_rows, cos_rows.stride(0), sin_rows, sin_rows.stride(0), dy_rows, dy_rows.stride(0), dx,
            segments * step, step, rows.count, WIDTH=width, **fit.options,
        )
        return dx, None, None, None


def rope_pairs(x, cos, sin, *, segments):
    """Pairs (2 i, 2 i + 1) of each segment, a head, turned by cos and sin.

    x [..., segments (2 width or more)], cos [..., width], sin [..., width] -> y [..., segments (2 width or
    more)].
    """
    return RopePairs.apply(x, cos, sin, segments)


@triton.jit
def scaled_add_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr,
    factor: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = residual + factor x."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
    y = factor * x + residual
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def scaled_add_backward(
    dy_ptr, dy_stride, dx_ptr, dx_stride, rows, WIDTH: tl.constexpr, factor: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of scaled_add."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    inside = live & there
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    dx = factor * dy
    tl.store(dx_row + col, dx, mask=inside)


class ScaledAdd(torch.autograd.Function):
    """y = residual + factor x."""

    @staticmethod
    def forward(ctx, x, residual, factor):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        scaled_add_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), y, width, rows.count, WIDTH=width,
            factor=factor, **fit.options,
        )
        ctx.save_for_backward()
        ctx.rows, ctx.width, ctx.factor = rows, width, factor
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        rows, width, factor = ctx.rows, ctx.width, ctx.factor
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        scaled_add_backward[fit.grid](
            dy_rows, dy_rows.stride(0), dx, width, rows.count, WIDTH=width, factor=factor, **fit.options,
        )
        return dx, dy, None


def scaled_add(x, residual, *, factor):
    """y = residual + factor x.

    x [..., width], residual [..., width] -> y [..., width].
    """
    return ScaledAdd.apply(x, residual, factor)


@triton.jit
def scaled_add_layernorm_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, weight_ptr, bias_ptr, h_ptr, h_stride, y_ptr, y_stride,
    center_ptr, rstd_ptr, rows, WIDTH: tl.constexpr, factor: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """h = factor x + residual; y = (h - mean) / sqrt(variance + eps) · weight + bias."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    h_row = h_ptr + row * h_stride
    y_row = y_ptr + row * y_stride
    center = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (factor * x + residual).to(h_ptr.dtype.element_ty).to(tl.float32)
        center += tl.sum(h, 1, keep_dims=True)
    center = center / WIDTH
    variance = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (factor * x + residual).to(h_ptr.dtype.element_ty).to(tl.float32)
        apart = h - center
        variance += tl.sum(tl.where(inside, apart * apart, 0.0), 1, keep_dims=True)
    variance = variance / WIDTH
    rstd = tl.rsqrt(variance + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + col, mask=there, other=0.0).to(tl.float32)
        h = (factor * x + residual).to(h_ptr.dtype.element_ty).to(tl.float32)
        apart = h - center
        y = rstd * weight * apart + bias
        tl.store(h_row + col, h, mask=inside)
        tl.store(y_row + col, y, mask=inside)
    tl.store(center_ptr + row, center, mask=live)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def scaled_add_layernorm_backward(
    weight_ptr, h_ptr, h_stride, center_ptr, rstd_ptr, dh_ptr, dh_stride, dy_ptr, dy_stride, dx_ptr, dx_stride,
    dresidual_ptr, dresidual_stride, dweight_ptr, dbias_ptr, rows, WIDTH: tl.constexpr, factor: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of scaled_add_layernorm."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    dbias_sums = dbias_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dbias = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        h_row = h_ptr + row * h_stride
        dh_row = dh_ptr + row * dh_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        dresidual_row = dresidual_ptr + row * dresidual_stride
        center = tl.load(center_ptr + row, mask=live, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        dcenter = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = h - center
            drstd += tl.sum(apart * t1, 1, keep_dims=True)
            dcenter += tl.sum(t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dh = tl.load(dh_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = h - center
            dh_total = dh + rstd * t1 - drstd / WIDTH * rstd * rstd * rstd * apart - dcenter / WIDTH * rstd
            dx = factor * dh_total
            tl.store(dx_row + col, dx, mask=inside)
            tl.store(dresidual_row + col, dh_total, mask=inside)
            dweight_tile = tl.sum(rstd * apart * dy, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
            dbias_tile = tl.sum(dy, 0, keep_dims=True)
            dbias = add_columns(dbias, dbias_tile, dbias_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)
        tl.store(dbias_sums + col, dbias, mask=col < WIDTH)


class ScaledAddLayernorm(torch.autograd.Function):
    """h = factor x + residual; y = (h - mean) / sqrt(variance + eps) · weight + bias."""

    @staticmethod
    def forward(ctx, x, residual, weight, bias, factor, eps):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        h = rows.empty(width)
        y = rows.empty(width)
        center = rows.empty(1, torch.float32)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        scaled_add_layernorm_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), vector(weight, width),
            vector(bias, width), h, width, y, width, center, rstd, rows.count, WIDTH=width, factor=factor, eps=eps,
            **fit.options,
        )
        ctx.save_for_backward(weight, h, center, rstd)
        ctx.rows, ctx.width, ctx.factor = rows, width, factor
        ctx.set_materialize_grads(False)
        return h, y

    @staticmethod
    @once_differentiable
    def backward(ctx, dh, dy):
        weight, h, center, rstd = ctx.saved_tensors
        rows, width, factor = ctx.rows, ctx.width, ctx.factor
        h_rows = rows.matrix(h, width)
        dh_rows = rows.matrix(dh, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        dresidual = rows.empty(width)
        fit = tile(rows.count, width, limit=4096, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        dbias = rows.zeros(fit.grid[0], width)
        scaled_add_layernorm_backward[fit.grid](
            vector(weight, width), h_rows, h_rows.stride(0), center, rstd, dh_rows, dh_rows.stride(0), dy_rows,
            dy_rows.stride(0), dx, width, dresidual, width, dweight, dbias, rows.count, WIDTH=width, factor=factor,
            **fit.options,
        )
        return dx, dresidual, dweight.sum(0), dbias.sum(0), None, None


def scaled_add_layernorm(x, residual, weight, bias, *, factor, eps):
    """h = factor x + residual; y = (h - mean) / sqrt(variance + eps) · weight + bias.

    x [..., width], residual [..., width], weight [width], bias [width] -> h [..., width], y [..., width].
    """
    return ScaledAddLayernorm.apply(x, residual, weight, bias, factor, eps)


@triton.jit
def scaled_add_layernorm_without_bias_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, weight_ptr, h_ptr, h_stride, y_ptr, y_stride, center_ptr,
    rstd_ptr, rows, WIDTH: tl.constexpr, factor: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """h = factor x + residual; y = (h - mean) / sqrt(variance + eps) · weight."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    h_row = h_ptr + row * h_stride
    y_row = y_ptr + row * y_stride
    center = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (factor * x + residual).to(h_ptr.dtype.element_ty).to(tl.float32)
        center += tl.sum(h, 1, keep_dims=True)
    center = center / WIDTH
    variance = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (factor * x + residual).to(h_ptr.dtype.element_ty).to(tl.float32)
        apart = h - center
        variance += tl.sum(tl.where(inside, apart * apart, 0.0), 1, keep_dims=True)
    variance = variance / WIDTH
    rstd = tl.rsqrt(variance + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        h = (factor * x + residual).to(h_ptr.dtype.element_ty).to(tl.float32)
        apart = h - center
        y = rstd * weight * apart
        tl.store(h_row + col, h, mask=inside)
        tl.store(y_row + col, y, mask=inside)
    tl.store(center_ptr + row, center, mask=live)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def scaled_add_layernorm_without_bias_backward(
    weight_ptr, h_ptr, h_stride, center_ptr, rstd_ptr, dh_ptr, dh_stride, dy_ptr, dy_stride, dx_ptr, dx_stride,
    dresidual_ptr, dresidual_stride, dweight_ptr, rows, WIDTH: tl.constexpr, factor: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of scaled_add_layernorm_without_bias."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        h_row = h_ptr + row * h_stride
        dh_row = dh_ptr + row * dh_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        dresidual_row = dresidual_ptr + row * dresidual_stride
        center = tl.load(center_ptr + row, mask=live, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        dcenter = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = h - center
            drstd += tl.sum(apart * t1, 1, keep_dims=True)
            dcenter += tl.sum(t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dh = tl.load(dh_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            apart = h - center
            dh_total = dh + rstd * t1 - drstd / WIDTH * rstd * rstd * rstd * apart - dcenter / WIDTH * rstd
            dx = factor * dh_total
            tl.store(dx_row + col, dx, mask=inside)
            tl.store(dresidual_row + col, dh_total, mask=inside)
            dweight_tile = tl.sum(rstd * apart * dy, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class ScaledAddLayernormWithoutBias(torch.autograd.Function):
    """h = factor x + residual; y = (h - mean) / sqrt(variance + eps) · weight."""

    @staticmethod
    def forward(ctx, x, residual, weight, factor, eps):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        h = rows.empty(width)
        y = rows.empty(width)
        center = rows.empty(1, torch.float32)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        scaled_add_layernorm_without_bias_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), vector(weight, width), h, width, y,
            width, center, rstd, rows.count, WIDTH=width, factor=factor, eps=eps, **fit.options,
        )
        ctx.save_for_backward(weight, h, center, rstd)
        ctx.rows, ctx.width, ctx.factor = rows, width, factor
        ctx.set_materialize_grads(False)
        return h, y

    @staticmethod
    @once_differentiable
    def backward(ctx, dh, dy):
        weight, h, center, rstd = ctx.saved_tensors
        rows, width, factor = ctx.rows, ctx.width, ctx.factor
        h_rows = rows.matrix(h, width)
        dh_rows = rows.matrix(dh, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        dresidual = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        scaled_add_layernorm_without_bias_backward[fit.grid](
            vector(weight, width), h_rows, h_rows.stride(0), center, rstd, dh_rows, dh_rows.stride(0), dy_rows,
            dy_rows.stride(0), dx, width, dresidual, width, dweight, rows.count, WIDTH=width, factor=factor,
            **fit.options,
        )
        return dx, dresidual, dweight.sum(0), None, None


def scaled_add_layernorm_without_bias(x, residual, weight, *, factor, eps):
    """h = factor x + residual; y = (h - mean) / sqrt(variance + eps) · weight.

    x [..., width], residual [..., width], weight [width] -> h [..., width], y [..., width].
    """
    return ScaledAddLayernormWithoutBias.apply(x, residual, weight, factor, eps)


@triton.jit
def scaled_add_plain_rmsnorm_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, h_ptr, h_stride, y_ptr, y_stride, rstd_ptr, rows,
    WIDTH: tl.constexpr, factor: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """h = factor x + residual; y = h / sqrt(mean(h²) + eps)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    h_row = h_ptr + row * h_stride
    y_row = y_ptr + row * y_stride
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (factor * x + residual).to(h_ptr.dtype.element_ty).to(tl.float32)
        square += tl.sum(h * h, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (factor * x + residual).to(h_ptr.dtype.element_ty).to(tl.float32)
        y = rstd * h
        tl.store(h_row + col, h, mask=inside)
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def scaled_add_plain_rmsnorm_backward(
    h_ptr, h_stride, rstd_ptr, dh_ptr, dh_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, dresidual_ptr,
    dresidual_stride, rows, WIDTH: tl.constexpr, factor: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of scaled_add_plain_rmsnorm."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    h_row = h_ptr + row * h_stride
    dh_row = dh_ptr + row * dh_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    dresidual_row = dresidual_ptr + row * dresidual_stride
    rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
    drstd = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        drstd += tl.sum(dy * h, 1, keep_dims=True)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
        dh = tl.load(dh_row + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        dh_total = dh + rstd * dy - drstd / WIDTH * rstd * rstd * rstd * h
        dx = factor * dh_total
        tl.store(dx_row + col, dx, mask=inside)
        tl.store(dresidual_row + col, dh_total, mask=inside)


class ScaledAddPlainRmsnorm(torch.autograd.Function):
    """h = factor x + residual; y = h / sqrt(mean(h²) + eps)."""

    @staticmethod
    def forward(ctx, x, residual, factor, eps):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        h = rows.empty(width)
        y = rows.empty(width)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        scaled_add_plain_rmsnorm_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), h, width, y, width, rstd, rows.count,
            WIDTH=width, factor=factor, eps=eps, **fit.options,
        )
        ctx.save_for_backward(h, rstd)
        ctx.rows, ctx.width, ctx.factor = rows, width, factor
        ctx.set_materialize_grads(False)
        return h, y

    @staticmethod
    @once_differentiable
    def backward(ctx, dh, dy):
        h, rstd = ctx.saved_tensors
        rows, width, factor = ctx.rows, ctx.width, ctx.factor
        h_rows = rows.matrix(h, width)
        dh_rows = rows.matrix(dh, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        dresidual = rows.empty(width)
        fit = tile(rows.count, width, limit=8192)
        scaled_add_plain_rmsnorm_backward[fit.grid](
            h_rows, h_rows.stride(0), rstd, dh_rows, dh_rows.stride(0), dy_rows, dy_rows.stride(0), dx, width,
            dresidual, width, rows.count, WIDTH=width, factor=factor, **fit.options,
        )
        return dx, dresidual, None, None


def scaled_add_plain_rmsnorm(x, residual, *, factor, eps):
    """h = factor x + residual; y = h / sqrt(mean(h²) + eps).

    x [..., width], residual [..., width] -> h [..., width], y [..., width].
    """
    return ScaledAddPlainRmsnorm.apply(x, residual, factor, eps)


@triton.jit
def scaled_add_rmsnorm_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, weight_ptr, h_ptr, h_stride, y_ptr, y_stride, rstd_ptr, rows,
    WIDTH: tl.constexpr, factor: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """h = factor x + residual; y = h / sqrt(mean(h²) + eps) · weight."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    h_row = h_ptr + row * h_stride
    y_row = y_ptr + row * y_stride
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (factor * x + residual).to(h_ptr.dtype.element_ty).to(tl.float32)
        square += tl.sum(h * h, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        h = (factor * x + residual).to(h_ptr.dtype.element_ty).to(tl.float32)
        y = rstd * weight * h
        tl.store(h_row + col, h, mask=inside)
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def scaled_add_rmsnorm_backward(
    weight_ptr, h_ptr, h_stride, rstd_ptr, dh_ptr, dh_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, dresidual_ptr,
    dresidual_stride, dweight_ptr, rows, WIDTH: tl.constexpr, factor: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of scaled_add_rmsnorm."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        h_row = h_ptr + row * h_stride
        dh_row = dh_ptr + row * dh_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        dresidual_row = dresidual_ptr + row * dresidual_stride
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            drstd += tl.sum(h * t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dh = tl.load(dh_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = weight * dy
            dh_total = dh + rstd * t1 - drstd / WIDTH * rstd * rstd * rstd * h
            dx = factor * dh_total
            tl.store(dx_row + col, dx, mask=inside)
            tl.store(dresidual_row + col, dh_total, mask=inside)
            dweight_tile = tl.sum(rstd * dy * h, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class ScaledAddRmsnorm(torch.autograd.Function):
    """h = factor x + residual; y = h / sqrt(mean(h²) + eps) · weight."""

    @staticmethod
    def forward(ctx, x, residual, weight, factor, eps):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        h = rows.empty(width)
        y = rows.empty(width)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        scaled_add_rmsnorm_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), vector(weight, width), h, width, y,
            width, rstd, rows.count, WIDTH=width, factor=factor, eps=eps, **fit.options,
        )
        ctx.save_for_backward(weight, h, rstd)
        ctx.rows, ctx.width, ctx.factor = rows, width, factor
        ctx.set_materialize_grads(False)
        return h, y

    @staticmethod
    @once_differentiable
    def backward(ctx, dh, dy):
        weight, h, rstd = ctx.saved_tensors
        rows, width, factor = ctx.rows, ctx.width, ctx.factor
        h_rows = rows.matrix(h, width)
        dh_rows = rows.matrix(dh, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        dresidual = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        scaled_add_rmsnorm_backward[fit.grid](
            vector(weight, width), h_rows, h_rows.stride(0), rstd, dh_rows, dh_rows.stride(0), dy_rows,
            dy_rows.stride(0), dx, width, dresidual, width, dweight, rows.count, WIDTH=width, factor=factor,
            **fit.options,
        )
        return dx, dresidual, dweight.sum(0), None, None


def scaled_add_rmsnorm(x, residual, weight, *, factor, eps):
    """h = factor x + residual; y = h / sqrt(mean(h²) + eps) · weight.

    x [..., width], residual [..., width], weight [width] -> h [..., width], y [..., width].
    """
    return ScaledAddRmsnorm.apply(x, residual, weight, factor, eps)


@triton.jit
def scaled_add_zero_centered_rmsnorm_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, weight_ptr, h_ptr, h_stride, y_ptr, y_stride, rstd_ptr, rows,
    WIDTH: tl.constexpr, factor: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """h = factor x + residual; y = h / sqrt(mean(h²) + eps) · (1 + weight)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    h_row = h_ptr + row * h_stride
    y_row = y_ptr + row * y_stride
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        h = (factor * x + residual).to(h_ptr.dtype.element_ty).to(tl.float32)
        square += tl.sum(h * h, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        h = (factor * x + residual).to(h_ptr.dtype.element_ty).to(tl.float32)
        y = rstd * (weight + 1) * h
        tl.store(h_row + col, h, mask=inside)
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def scaled_add_zero_centered_rmsnorm_backward(
    weight_ptr, h_ptr, h_stride, rstd_ptr, dh_ptr, dh_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, dresidual_ptr,
    dresidual_stride, dweight_ptr, rows, WIDTH: tl.constexpr, factor: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of scaled_add_zero_centered_rmsnorm."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        h_row = h_ptr + row * h_stride
        dh_row = dh_ptr + row * dh_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        dresidual_row = dresidual_ptr + row * dresidual_stride
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = (weight + 1) * dy
            drstd += tl.sum(h * t1, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            h = tl.load(h_row + col, mask=inside, other=0.0).to(tl.float32)
            dh = tl.load(dh_row + col, mask=inside, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = (weight + 1) * dy
            dh_total = dh + rstd * t1 - drstd / WIDTH * rstd * rstd * rstd * h
            dx = factor * dh_total
            tl.store(dx_row + col, dx, mask=inside)
            tl.store(dresidual_row + col, dh_total, mask=inside)
            dweight_tile = tl.sum(rstd * dy * h, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class ScaledAddZeroCenteredRmsnorm(torch.autograd.Function):
    """h = factor x + residual; y = h / sqrt(mean(h²) + eps) · (1 + weight)."""

    @staticmethod
    def forward(ctx, x, residual, weight, factor, eps):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        h = rows.empty(width)
        y = rows.empty(width)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        scaled_add_zero_centered_rmsnorm_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), vector(weight, width), h, width, y,
            width, rstd, rows.count, WIDTH=width, factor=factor, eps=eps, **fit.options,
        )
        ctx.save_for_backward(weight, h, rstd)
        ctx.rows, ctx.width, ctx.factor = rows, width, factor
        ctx.set_materialize_grads(False)
        return h, y

    @staticmethod
    @once_differentiable
    def backward(ctx, dh, dy):
        weight, h, rstd = ctx.saved_tensors
        rows, width, factor = ctx.rows, ctx.width, ctx.factor
        h_rows = rows.matrix(h, width)
        dh_rows = rows.matrix(dh, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        dresidual = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        scaled_add_zero_centered_rmsnorm_backward[fit.grid](
            vector(weight, width), h_rows, h_rows.stride(0), rstd, dh_rows, dh_rows.stride(0), dy_rows,
            dy_rows.stride(0), dx, width, dresidual, width, dweight, rows.count, WIDTH=width, factor=factor,
            **fit.options,
        )
        return dx, dresidual, dweight.sum(0), None, None


def scaled_add_zero_centered_rmsnorm(x, residual, weight, *, factor, eps):
    """h = factor x + residual; y = h / sqrt(mean(h²) + eps) · (1 + weight).

    x [..., width], residual [..., width], weight [width] -> h [..., width], y [..., width].
    """
    return ScaledAddZeroCenteredRmsnorm.apply(x, residual, weight, factor, eps)


@triton.jit
def scaled_silu_glu_forward(
    gate_up_ptr, gate_up_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, factor: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = silu(factor gate) · up."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
    t1 = factor * gate
    y = t1 * tl.sigmoid(t1) * up
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def scaled_silu_glu_backward(
    gate_up_ptr, gate_up_stride, dy_ptr, dy_stride, dgate_up_ptr, dgate_up_stride, rows, WIDTH: tl.constexpr,
    factor: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of scaled_silu_glu."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    dy_row = dy_ptr + row * dy_stride
    dgate_up_row = dgate_up_ptr + row * dgate_up_stride
    inside = live & there
    gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    t1 = factor * gate
    sigmoid_t1 = tl.sigmoid(t1)
    t2 = dy * sigmoid_t1
    dgate = factor * ((1 - sigmoid_t1) * t1 + 1) * t2 * up
    dup = t1 * t2
    tl.store(dgate_up_row + col, dgate, mask=inside)
    tl.store(dgate_up_row + WIDTH + col, dup, mask=inside)


class ScaledSiluGlu(torch.autograd.Function):
    """y = silu(factor gate) · up."""

    @staticmethod
    def forward(ctx, gate_up, factor):
        rows = Rows.of(gate_up)
        width = gate_up.shape[-1] // 2
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        scaled_silu_glu_forward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), y, width, rows.count, WIDTH=width, factor=factor, **fit.options,
        )
        ctx.save_for_backward(gate_up)
        ctx.rows, ctx.width, ctx.factor = rows, width, factor
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate_up, = ctx.saved_tensors
        rows, width, factor = ctx.rows, ctx.width, ctx.factor
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        dy_rows = rows.matrix(dy, width)
        dgate_up = rows.empty(2 * width)
        fit = tile(rows.count, width, columns=True)
        scaled_silu_glu_backward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), dy_rows, dy_rows.stride(0), dgate_up, 2 * width, rows.count,
            WIDTH=width, factor=factor, **fit.options,
        )
        return dgate_up, None


def scaled_silu_glu(gate_up, *, factor):
    """y = silu(factor gate) · up.

    gate_up [..., 2 width] -> y [..., width].
    """
    return ScaledSiluGlu.apply(gate_up, factor)


@triton.jit
def sigmoid_bias_router_forward(
    logits_ptr, logits_stride, bias_ptr, weights_ptr, ids_ptr, rows, WIDTH: tl.constexpr, k: tl.constexpr,
    renormalize: tl.constexpr, eps: tl.constexpr, scaling: tl.constexpr, groups: tl.constexpr,
    top_groups: tl.constexpr, SLOTS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The k largest of sigmoid(logits) + bias."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    col = tl.arange(0, BLOCK)[None, :]
    inside = live & (col < WIDTH)
    logits = tl.load(logits_ptr + row * logits_stride + col, mask=inside, other=0.0).to(tl.float32)
    score = tl.sigmoid(logits)
    bias = tl.load(bias_ptr + col, mask=col < WIDTH, other=0.0).to(tl.float32)
    ranked = tl.where(col < WIDTH, tl.maximum(score + bias, -1.0e38), float("-inf"))
    if top_groups < groups:
        ranked = within_groups(ranked, col, WIDTH, groups, top_groups)
    slot = tl.arange(0, SLOTS)[None, :]
    weights = tl.zeros([ROWS, SLOTS], tl.float32)
    for i in range(k):
        best = tl.minimum(tl.argmax(ranked, 1, keep_dims=True), WIDTH - 1)
        chosen = col == best
        weights = tl.where(slot == i, tl.sum(tl.where(chosen, score, 0.0), 1, keep_dims=True), weights)
        ranked = tl.where(chosen, float("-inf"), ranked)
        tl.store(ids_ptr + row * k + i, best, mask=live)
    if renormalize:
        weights = weights / (tl.sum(weights, 1, keep_dims=True) + eps)
    tl.store(weights_ptr + row * k + slot, scaling * weights, mask=live & (slot < k))


@triton.jit
def sigmoid_bias_router_backward(
    logits_ptr, logits_stride, ids_ptr, dweights_ptr, dweights_stride, dlogits_ptr, rows, WIDTH: tl.constexpr,
    k: tl.constexpr, renormalize: tl.constexpr, eps: tl.constexpr, scaling: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of sigmoid_bias_router."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    col = tl.arange(0, BLOCK)[None, :]
    inside = live & (col < WIDTH)
    logits = tl.load(logits_ptr + row * logits_stride + col, mask=inside, other=0.0).to(tl.float32)
    score = tl.sigmoid(logits)
    given = tl.zeros([ROWS, BLOCK], tl.float32)
    picked = tl.zeros([ROWS, BLOCK], tl.int32)
    for i in range(k):
        chosen = col == tl.load(ids_ptr + row * k + i, mask=live, other=-1)
        given = tl.where(chosen, tl.load(dweights_ptr + row * dweights_stride + i, mask=live, other=0.0), given)
        picked = tl.where(chosen, 1, picked)
    dscore = scaling * given
    if renormalize:
        total = tl.sum(tl.where(picked != 0, score, 0.0), 1, keep_dims=True) + eps
        dscore = (dscore - tl.sum(dscore * score, 1, keep_dims=True) / total) / total
        dscore = tl.where(picked != 0, dscore, 0.0)
    dlogits = (1 - score) * dscore * score
    tl.store(dlogits_ptr + row * WIDTH + col, dlogits, mask=inside)


class SigmoidBiasRouter(torch.autograd.Function):
    """The k largest of sigmoid(logits) + bias."""

    @staticmethod
    def forward(ctx, logits, bias, k, renormalize, eps, scaling, groups, top_groups):
        rows, experts = Rows.of(logits), logits.shape[-1]
        logits_rows = rows.matrix(logits, experts)
        weights, ids = rows.empty(k, torch.float32), rows.empty(k, torch.int64)
        fit = tile(rows.count, experts, whole=4096)
        sigmoid_bias_router_forward[fit.grid](
            logits_rows, logits_rows.stride(0), vector(bias, experts), weights, ids, rows.count, WIDTH=experts, k=k,
            renormalize=renormalize, eps=eps, scaling=scaling, groups=groups, top_groups=top_groups,
            SLOTS=triton.next_power_of_2(k), **fit.options,
        )
        ctx.save_for_backward(logits, ids)
        ctx.rows, ctx.numbers = rows, (k, renormalize, eps, scaling)
        ctx.mark_non_differentiable(ids)
        return weights, ids

    @staticmethod
    @once_differentiable
    def backward(ctx, dweights, dids):
        logits, ids = ctx.saved_tensors
        rows, (k, renormalize, eps, scaling) = ctx.rows, ctx.numbers
        experts = logits.shape[-1]
        logits_rows, dweights_rows = rows.matrix(logits, experts), rows.matrix(dweights, k)
        dlogits = rows.empty(experts)
        fit = tile(rows.count, experts, whole=4096)
        sigmoid_bias_router_backward[fit.grid](
            logits_rows, logits_rows.stride(0), ids, dweights_rows, dweights_rows.stride(0), dlogits, rows.count,
            WIDTH=experts, k=k, renormalize=renormalize, eps=eps, scaling=scaling, **fit.options,
        )
        return dlogits, None, None, None, None, None, None, None


def sigmoid_bias_router(logits, bias, k, *, renormalize, eps=0.0, scaling=1.0, groups=1, top_groups=1):
    """The k largest of sigmoid(logits) + bias.

    logits [..., experts], bias [experts] -> weights [..., k] fp32, ids [..., k] int64, the best first. Weights
    are scores times `scaling`, divided by their sum and `eps` if `renormalize`; with `groups`, experts are from
    the `top_groups` groups with the largest sums of their two best.
    """
    return SigmoidBiasRouter.apply(logits, bias, k, renormalize, eps, scaling, groups, top_groups)


@triton.jit
def sigmoid_gate_forward(
    x_ptr, x_stride, gate_ptr, gate_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x · sigmoid(gate)."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    gate_row = gate_ptr + row * gate_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
    y = tl.sigmoid(gate) * x
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def sigmoid_gate_backward(
    x_ptr, x_stride, gate_ptr, gate_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, dgate_ptr, dgate_stride, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of sigmoid_gate."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    gate_row = gate_ptr + row * gate_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    dgate_row = dgate_ptr + row * dgate_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    sigmoid_gate = tl.sigmoid(gate)
    t1 = dy * sigmoid_gate
    tl.store(dx_row + col, t1, mask=inside)
    dgate = (1 - sigmoid_gate) * t1 * x
    tl.store(dgate_row + col, dgate, mask=inside)


class SigmoidGate(torch.autograd.Function):
    """y = x · sigmoid(gate)."""

    @staticmethod
    def forward(ctx, x, gate):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        gate_rows = rows.matrix(gate, width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        sigmoid_gate_forward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), y, width, rows.count, WIDTH=width,
            **fit.options,
        )
        ctx.save_for_backward(x, gate)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, gate = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        gate_rows = rows.matrix(gate, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        dgate = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        sigmoid_gate_backward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), dy_rows, dy_rows.stride(0), dx, width, dgate,
            width, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dgate


def sigmoid_gate(x, gate):
    """y = x · sigmoid(gate).

    x [..., width], gate [..., width] -> y [..., width].
    """
    return SigmoidGate.apply(x, gate)


@triton.jit
def sigmoid_router_forward(
    logits_ptr, logits_stride, weights_ptr, ids_ptr, rows, WIDTH: tl.constexpr, k: tl.constexpr,
    renormalize: tl.constexpr, eps: tl.constexpr, scaling: tl.constexpr, groups: tl.constexpr,
    top_groups: tl.constexpr, SLOTS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The k largest of sigmoid(logits)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    col = tl.arange(0, BLOCK)[None, :]
    inside = live & (col < WIDTH)
    logits = tl.load(logits_ptr + row * logits_stride + col, mask=inside, other=0.0).to(tl.float32)
    score = tl.sigmoid(logits)
    ranked = tl.where(col < WIDTH, tl.maximum(score, -1.0e38), float("-inf"))
    if top_groups < groups:
        ranked = within_groups(ranked, col, WIDTH, groups, top_groups)
    slot = tl.arange(0, SLOTS)[None, :]
    weights = tl.zeros([ROWS, SLOTS], tl.float32)
    for i in range(k):
        best = tl.minimum(tl.argmax(ranked, 1, keep_dims=True), WIDTH - 1)
        chosen = col == best
        weights = tl.where(slot == i, tl.sum(tl.where(chosen, score, 0.0), 1, keep_dims=True), weights)
        ranked = tl.where(chosen, float("-inf"), ranked)
        tl.store(ids_ptr + row * k + i, best, mask=live)
    if renormalize:
        weights = weights / (tl.sum(weights, 1, keep_dims=True) + eps)
    tl.store(weights_ptr + row * k + slot, scaling * weights, mask=live & (slot < k))


@triton.jit
def sigmoid_router_backward(
    logits_ptr, logits_stride, ids_ptr, dweights_ptr, dweights_stride, dlogits_ptr, rows, WIDTH: tl.constexpr,
    k: tl.constexpr, renormalize: tl.constexpr, eps: tl.constexpr, scaling: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of sigmoid_router."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    col = tl.arange(0, BLOCK)[None, :]
    inside = live & (col < WIDTH)
    logits = tl.load(logits_ptr + row * logits_stride + col, mask=inside, other=0.0).to(tl.float32)
    score = tl.sigmoid(logits)
    given = tl.zeros([ROWS, BLOCK], tl.float32)
    picked = tl.zeros([ROWS, BLOCK], tl.int32)
    for i in range(k):
        chosen = col == tl.load(ids_ptr + row * k + i, mask=live, other=-1)
        given = tl.where(chosen, tl.load(dweights_ptr + row * dweights_stride + i, mask=live, other=0.0), given)
        picked = tl.where(chosen, 1, picked)
    dscore = scaling * given
    if renormalize:
        total = tl.sum(tl.where(picked != 0, score, 0.0), 1, keep_dims=True) + eps
        dscore = (dscore - tl.sum(dscore * score, 1, keep_dims=True) / total) / total
        dscore = tl.where(picked != 0, dscore, 0.0)
    dlogits = (1 - score) * dscore * score
    tl.store(dlogits_ptr + row * WIDTH + col, dlogits, mask=inside)


class SigmoidRouter(torch.autograd.Function):
    """The k largest of sigmoid(logits)."""

    @staticmethod
    def forward(ctx, logits, k, renormalize, eps, scaling, groups, top_groups):
        rows, experts = Rows.of(logits), logits.shape[-1]
        logits_rows = rows.matrix(logits, experts)
        weights, ids = rows.empty(k, torch.float32), rows.empty(k, torch.int64)
        fit = tile(rows.count, experts, whole=4096)
        sigmoid_router_forward[fit.grid](
            logits_rows, logits_rows.stride(0), weights, ids, rows.count, WIDTH=experts, k=k,
            renormalize=renormalize, eps=eps, scaling=scaling, groups=groups, top_groups=top_groups,
            SLOTS=triton.next_power_of_2(k), **fit.options,
        )
        ctx.save_for_backward(logits, ids)
        ctx.rows, ctx.numbers = rows, (k, renormalize, eps, scaling)
        ctx.mark_non_differentiable(ids)
        return weights, ids

    @staticmethod
    @once_differentiable
    def backward(ctx, dweights, dids):
        logits, ids = ctx.saved_tensors
        rows, (k, renormalize, eps, scaling) = ctx.rows, ctx.numbers
        experts = logits.shape[-1]
        logits_rows, dweights_rows = rows.matrix(logits, experts), rows.matrix(dweights, k)
        dlogits = rows.empty(experts)
        fit = tile(rows.count, experts, whole=4096)
        sigmoid_router_backward[fit.grid](
            logits_rows, logits_rows.stride(0), ids, dweights_rows, dweights_rows.stride(0), dlogits, rows.count,
            WIDTH=experts, k=k, renormalize=renormalize, eps=eps, scaling=scaling, **fit.options,
        )
        return dlogits, None, None, None, None, None, None


def sigmoid_router(logits, k, *, renormalize, eps=0.0, scaling=1.0, groups=1, top_groups=1):
    """The k largest of sigmoid(logits).

    logits [..., experts] -> weights [..., k] fp32, ids [..., k] int64, the best first. Weights are scores times
    `scaling`, divided by their sum and `eps` if `renormalize`; with `groups`, experts are from the `top_groups`
    groups with the largest sums of their two best.
    """
    return SigmoidRouter.apply(logits, k, renormalize, eps, scaling, groups, top_groups)


@triton.jit
def sigmoid_row_gate_forward(
    x_ptr, x_stride, gate_ptr, residual_ptr, residual_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = x sigmoid(gate) + residual, a gate for each row."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    y_row = y_ptr + row * y_stride
    gate = tl.load(gate_ptr + row, mask=live, other=0.0).to(tl.float32)
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
    y = residual + tl.sigmoid(gate) * x
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def sigmoid_row_gate_backward(
    x_ptr, x_stride, gate_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dgate_ptr, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of sigmoid_row_gate."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    gate = tl.load(gate_ptr + row, mask=live, other=0.0).to(tl.float32)
    sigmoid_gate = tl.sigmoid(gate)
    dgate = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        dgate += tl.sum(dy * x, 1, keep_dims=True)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        dx = sigmoid_gate * dy
        tl.store(dx_row + col, dx, mask=inside)
    tl.store(dgate_ptr + row, (1 - sigmoid_gate) * dgate * sigmoid_gate, mask=live)


class SigmoidRowGate(torch.autograd.Function):
    """y = x sigmoid(gate) + residual, a gate for each row."""

    @staticmethod
    def forward(ctx, x, gate, residual):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        sigmoid_row_gate_forward[fit.grid](
            x_rows, x_rows.stride(0), rows.numbers(gate, 1), residual_rows, residual_rows.stride(0), y, width,
            rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(x, gate)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, gate = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        dgate = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=16384)
        sigmoid_row_gate_backward[fit.grid](
            x_rows, x_rows.stride(0), rows.numbers(gate, 1), dy_rows, dy_rows.stride(0), dx, width, dgate,
            rows.count, WIDTH=width, **fit.options,
        )
        return dx, dgate, dy


def sigmoid_row_gate(x, gate, residual):
    """y = x sigmoid(gate) + residual, a gate for each row.

    x [..., width], gate [..., 1], residual [..., width] -> y [..., width].
    """
    return SigmoidRowGate.apply(x, gate, residual)


@triton.jit
def silu_forward(
    x_ptr, x_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = silu(x)."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    y = tl.sigmoid(x) * x
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def silu_backward(
    x_ptr, x_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of silu."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    sigmoid_x = tl.sigmoid(x)
    dx = ((1 - sigmoid_x) * x + 1) * dy * sigmoid_x
    tl.store(dx_row + col, dx, mask=inside)


class Silu(torch.autograd.Function):
    """y = silu(x)."""

    @staticmethod
    def forward(ctx, x):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        silu_forward[fit.grid](
            x_rows, x_rows.stride(0), y, width, rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(x)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        silu_backward[fit.grid](
            x_rows, x_rows.stride(0), dy_rows, dy_rows.stride(0), dx, width, rows.count, WIDTH=width, **fit.options,
        )
        return dx


def silu(x):
    """y = silu(x).

    x [..., width] -> y [..., width].
    """
    return Silu.apply(x)


@triton.jit
def silu_gate_forward(
    x_ptr, x_stride, gate_ptr, gate_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = x · silu(gate)."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    gate_row = gate_ptr + row * gate_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
    y = gate * tl.sigmoid(gate) * x
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def silu_gate_backward(
    x_ptr, x_stride, gate_ptr, gate_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, dgate_ptr, dgate_stride, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of silu_gate."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    gate_row = gate_ptr + row * gate_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    dgate_row = dgate_ptr + row * dgate_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_row + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    sigmoid_gate = tl.sigmoid(gate)
    t1 = dy * sigmoid_gate
    dx = gate * t1
    tl.store(dx_row + col, dx, mask=inside)
    dgate = ((1 - sigmoid_gate) * gate + 1) * t1 * x
    tl.store(dgate_row + col, dgate, mask=inside)


class SiluGate(torch.autograd.Function):
    """y = x · silu(gate)."""

    @staticmethod
    def forward(ctx, x, gate):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        gate_rows = rows.matrix(gate, width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        silu_gate_forward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), y, width, rows.count, WIDTH=width,
            **fit.options,
        )
        ctx.save_for_backward(x, gate)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, gate = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        gate_rows = rows.matrix(gate, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        dgate = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        silu_gate_backward[fit.grid](
            x_rows, x_rows.stride(0), gate_rows, gate_rows.stride(0), dy_rows, dy_rows.stride(0), dx, width, dgate,
            width, rows.count, WIDTH=width, **fit.options,
        )
        return dx, dgate


def silu_gate(x, gate):
    """y = x · silu(gate).

    x [..., width], gate [..., width] -> y [..., width].
    """
    return SiluGate.apply(x, gate)


@triton.jit
def silu_glu_forward(
    gate_up_ptr, gate_up_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = silu(gate) · up."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
    y = gate * tl.sigmoid(gate) * up
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def silu_glu_backward(
    gate_up_ptr, gate_up_stride, dy_ptr, dy_stride, dgate_up_ptr, dgate_up_stride, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of silu_glu."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    dy_row = dy_ptr + row * dy_stride
    dgate_up_row = dgate_up_ptr + row * dgate_up_stride
    inside = live & there
    gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    sigmoid_gate = tl.sigmoid(gate)
    t1 = dy * sigmoid_gate
    dgate = ((1 - sigmoid_gate) * gate + 1) * t1 * up
    dup = gate * t1
    tl.store(dgate_up_row + col, dgate, mask=inside)
    tl.store(dgate_up_row + WIDTH + col, dup, mask=inside)


class SiluGlu(torch.autograd.Function):
    """y = silu(gate) · up."""

    @staticmethod
    def forward(ctx, gate_up):
        rows = Rows.of(gate_up)
        width = gate_up.shape[-1] // 2
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        silu_glu_forward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), y, width, rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(gate_up)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate_up, = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        dy_rows = rows.matrix(dy, width)
        dgate_up = rows.empty(2 * width)
        fit = tile(rows.count, width, columns=True)
        silu_glu_backward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), dy_rows, dy_rows.stride(0), dgate_up, 2 * width, rows.count,
            WIDTH=width, **fit.options,
        )
        return dgate_up


def silu_glu(gate_up):
    """y = silu(gate) · up.

    gate_up [..., 2 width] -> y [..., width].
    """
    return SiluGlu.apply(gate_up)


@triton.jit
def silu_glu_e4m3_block_forward(
    gate_up_ptr, gate_up_stride, y_ptr, y_stride, y_scale_ptr, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = silu(gate) · up, in E4M3 with a factor for each 128 columns."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    y_row = y_ptr + row * y_stride
    y_scale_row = y_scale_ptr + row * tl.cdiv(WIDTH, 128)
    inside = live & there
    gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
    y = gate * tl.sigmoid(gate) * up
    quantized, scale = to_e4m3_blocks(y, inside, ROWS, BLOCK)
    tl.store(y_row + col, quantized, mask=inside)
    block = tl.program_id(1) * BLOCK // 128 + tl.arange(0, BLOCK // 128)[None, :]
    tl.store(y_scale_row + block, scale, mask=live & (block < tl.cdiv(WIDTH, 128)))


@triton.jit
def silu_glu_e4m3_block_backward(
    gate_up_ptr, gate_up_stride, dy_ptr, dy_stride, dgate_up_ptr, dgate_up_stride, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of silu_glu_e4m3_block."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    dy_row = dy_ptr + row * dy_stride
    dgate_up_row = dgate_up_ptr + row * dgate_up_stride
    inside = live & there
    gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    sigmoid_gate = tl.sigmoid(gate)
    t1 = dy * sigmoid_gate
    dgate = ((1 - sigmoid_gate) * gate + 1) * t1 * up
    dup = gate * t1
    tl.store(dgate_up_row + col, dgate, mask=inside)
    tl.store(dgate_up_row + WIDTH + col, dup, mask=inside)


class SiluGluE4m3Block(torch.autograd.Function):
    """y = silu(gate) · up, in E4M3 with a factor for each 128 columns."""

    @staticmethod
    def forward(ctx, gate_up):
        rows = Rows.of(gate_up)
        width = gate_up.shape[-1] // 2
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        y = rows.empty(width, torch.float8_e4m3fn)
        y_scale = rows.empty(triton.cdiv(width, 128), torch.float32)
        fit = tile(rows.count, width, columns=True, least=128)
        silu_glu_e4m3_block_forward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), y, width, y_scale, rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(gate_up)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(y, y_scale)
        return y, y_scale, rows.carrier(width)

    @staticmethod
    @once_differentiable
    def backward(ctx, y_unused, y_scale_unused, dy):
        gate_up, = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        dy_rows = rows.matrix(dy, width)
        dgate_up = rows.empty(2 * width)
        fit = tile(rows.count, width, columns=True)
        silu_glu_e4m3_block_backward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), dy_rows, dy_rows.stride(0), dgate_up, 2 * width, rows.count,
            WIDTH=width, **fit.options,
        )
        return dgate_up


def silu_glu_e4m3_block(gate_up):
    """y = silu(gate) · up, in E4M3 with a factor for each 128 columns.

    gate_up [..., 2 width] -> y [..., width] as it is stored.
    """
    y, y_scale, dy = SiluGluE4m3Block.apply(gate_up)
    return Stored(y, y_scale, dy, partial(silu_glu, gate_up))


@triton.jit
def silu_glu_e4m3_row_forward(
    gate_up_ptr, gate_up_stride, y_ptr, y_stride, y_scale_ptr, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = silu(gate) · up, in E4M3 with a factor for each row."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    y_row = y_ptr + row * y_stride
    y_amax = tl.full([ROWS, 1], float("-inf"), tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
        y = gate * tl.sigmoid(gate) * up
        y_amax = tl.maximum(y_amax, tl.max(tl.where(inside, magnitude(y), float("-inf")), 1, keep_dims=True))
    y_scale = e4m3_factor(y_amax)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
        y = gate * tl.sigmoid(gate) * up
        tl.store(y_row + col, to_e4m3(y, y_scale), mask=inside)
    tl.store(y_scale_ptr + row, y_scale, mask=live)


@triton.jit
def silu_glu_e4m3_row_backward(
    gate_up_ptr, gate_up_stride, dy_ptr, dy_stride, dgate_up_ptr, dgate_up_stride, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of silu_glu_e4m3_row."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    gate_up_row = gate_up_ptr + row * gate_up_stride
    dy_row = dy_ptr + row * dy_stride
    dgate_up_row = dgate_up_ptr + row * dgate_up_stride
    inside = live & there
    gate = tl.load(gate_up_row + col, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_row + WIDTH + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    sigmoid_gate = tl.sigmoid(gate)
    t1 = dy * sigmoid_gate
    dgate = ((1 - sigmoid_gate) * gate + 1) * t1 * up
    dup = gate * t1
    tl.store(dgate_up_row + col, dgate, mask=inside)
    tl.store(dgate_up_row + WIDTH + col, dup, mask=inside)


class SiluGluE4m3Row(torch.autograd.Function):
    """y = silu(gate) · up, in E4M3 with a factor for each row."""

    @staticmethod
    def forward(ctx, gate_up):
        rows = Rows.of(gate_up)
        width = gate_up.shape[-1] // 2
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        y = rows.empty(width, torch.float8_e4m3fn)
        y_scale = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=16384)
        silu_glu_e4m3_row_forward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), y, width, y_scale, rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(gate_up)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(y, y_scale)
        return y, y_scale, rows.carrier(width)

    @staticmethod
    @once_differentiable
    def backward(ctx, y_unused, y_scale_unused, dy):
        gate_up, = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        gate_up_rows = rows.matrix(gate_up, 2 * width)
        dy_rows = rows.matrix(dy, width)
        dgate_up = rows.empty(2 * width)
        fit = tile(rows.count, width, columns=True)
        silu_glu_e4m3_row_backward[fit.grid](
            gate_up_rows, gate_up_rows.stride(0), dy_rows, dy_rows.stride(0), dgate_up, 2 * width, rows.count,
            WIDTH=width, **fit.options,
        )
        return dgate_up


def silu_glu_e4m3_row(gate_up):
    """y = silu(gate) · up, in E4M3 with a factor for each row.

    gate_up [..., 2 width] -> y [..., width] as it is stored.
    """
    y, y_scale, dy = SiluGluE4m3Row.apply(gate_up)
    return Stored(y, y_scale, dy, partial(silu_glu, gate_up))


@triton.jit
def softcap_forward(
    x_ptr, x_stride, y_ptr, y_stride, rows, WIDTH: tl.constexpr, cap: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = cap tanh(x / cap)."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    y = cap * tanh(x / cap)
    tl.store(y_row + col, y, mask=inside)


@triton.jit
def softcap_backward(
    x_ptr, x_stride, dy_ptr, dy_stride, dx_ptr, dx_stride, rows, WIDTH: tl.constexpr, cap: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of softcap."""
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    there = col < WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    inside = live & there
    x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
    t1 = tanh(x / cap)
    dx = (1 - t1 * t1) * dy
    tl.store(dx_row + col, dx, mask=inside)


class Softcap(torch.autograd.Function):
    """y = cap tanh(x / cap)."""

    @staticmethod
    def forward(ctx, x, cap):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        y = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        softcap_forward[fit.grid](
            x_rows, x_rows.stride(0), y, width, rows.count, WIDTH=width, cap=cap, **fit.options,
        )
        ctx.save_for_backward(x)
        ctx.rows, ctx.width, ctx.cap = rows, width, cap
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, = ctx.saved_tensors
        rows, width, cap = ctx.rows, ctx.width, ctx.cap
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, columns=True)
        softcap_backward[fit.grid](
            x_rows, x_rows.stride(0), dy_rows, dy_rows.stride(0), dx, width, rows.count, WIDTH=width, cap=cap,
            **fit.options,
        )
        return dx, None


def softcap(x, *, cap):
    """y = cap tanh(x / cap).

    x [..., width] -> y [..., width].
    """
    return Softcap.apply(x, cap)


@triton.jit
def softmax_forward(
    x_ptr, x_stride, y_ptr, y_stride, largest_ptr, total_ptr, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = softmax(x)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    largest = tl.full([ROWS, 1], float("-inf"), tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.max(tl.where(inside, x, float("-inf")), 1, keep_dims=True))
    total = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        power = tl.exp(x - largest)
        total += tl.sum(tl.where(inside, power, 0.0), 1, keep_dims=True)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        power = tl.exp(x - largest)
        y = power / total
        tl.store(y_row + col, y, mask=inside)
    tl.store(largest_ptr + row, largest, mask=live)
    tl.store(total_ptr + row, total, mask=live)


@triton.jit
def softmax_backward(
    x_ptr, x_stride, largest_ptr, total_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, rows, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of softmax."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    dy_row = dy_ptr + row * dy_stride
    dx_row = dx_ptr + row * dx_stride
    largest = tl.load(largest_ptr + row, mask=live, other=0.0).to(tl.float32)
    total = tl.load(total_ptr + row, mask=live, other=0.0).to(tl.float32)
    t1 = 1 / total
    dtotal = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        power = tl.exp(x - largest)
        dtotal += tl.sum(tl.where(inside, dy * power, 0.0), 1, keep_dims=True)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        power = tl.exp(x - largest)
        dx = t1 * (dy - dtotal * t1) * power
        tl.store(dx_row + col, dx, mask=inside)


class Softmax(torch.autograd.Function):
    """y = softmax(x)."""

    @staticmethod
    def forward(ctx, x):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        y = rows.empty(width)
        largest = rows.empty(1, torch.float32)
        total = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=16384)
        softmax_forward[fit.grid](
            x_rows, x_rows.stride(0), y, width, largest, total, rows.count, WIDTH=width, **fit.options,
        )
        ctx.save_for_backward(x, largest, total)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, largest, total = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=16384)
        softmax_backward[fit.grid](
            x_rows, x_rows.stride(0), largest, total, dy_rows, dy_rows.stride(0), dx, width, rows.count,
            WIDTH=width, **fit.options,
        )
        return dx


def softmax(x):
    """y = softmax(x).

    x [..., width] -> y [..., width].
    """
    return Softmax.apply(x)


@triton.jit
def softmax_bias_router_forward(
    logits_ptr, logits_stride, bias_ptr, weights_ptr, ids_ptr, rows, WIDTH: tl.constexpr, k: tl.constexpr,
    renormalize: tl.constexpr, eps: tl.constexpr, scaling: tl.constexpr, groups: tl.constexpr,
    top_groups: tl.constexpr, SLOTS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The k largest of softmax(logits) + bias."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    col = tl.arange(0, BLOCK)[None, :]
    inside = live & (col < WIDTH)
    logits = tl.load(logits_ptr + row * logits_stride + col, mask=inside, other=0.0).to(tl.float32)
    largest = tl.max(tl.where(inside, logits, float("-inf")), 1, keep_dims=True)
    power = tl.exp(logits - largest)
    total = tl.sum(tl.where(inside, power, 0.0), 1, keep_dims=True)
    score = power / total
    bias = tl.load(bias_ptr + col, mask=col < WIDTH, other=0.0).to(tl.float32)
    ranked = tl.where(col < WIDTH, tl.maximum(score + bias, -1.0e38), float("-inf"))
    if top_groups < groups:
        ranked = within_groups(ranked, col, WIDTH, groups, top_groups)
    slot = tl.arange(0, SLOTS)[None, :]
    weights = tl.zeros([ROWS, SLOTS], tl.float32)
    for i in range(k):
        best = tl.minimum(tl.argmax(ranked, 1, keep_dims=True), WIDTH - 1)
        chosen = col == best
        weights = tl.where(slot == i, tl.sum(tl.where(chosen, score, 0.0), 1, keep_dims=True), weights)
        ranked = tl.where(chosen, float("-inf"), ranked)
        tl.store(ids_ptr + row * k + i, best, mask=live)
    if renormalize:
        weights = weights / (tl.sum(weights, 1, keep_dims=True) + eps)
    tl.store(weights_ptr + row * k + slot, scaling * weights, mask=live & (slot < k))


@triton.jit
def softmax_bias_router_backward(
    logits_ptr, logits_stride, ids_ptr, dweights_ptr, dweights_stride, dlogits_ptr, rows, WIDTH: tl.constexpr,
    k: tl.constexpr, renormalize: tl.constexpr, eps: tl.constexpr, scaling: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of softmax_bias_router."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    col = tl.arange(0, BLOCK)[None, :]
    inside = live & (col < WIDTH)
    logits = tl.load(logits_ptr + row * logits_stride + col, mask=inside, other=0.0).to(tl.float32)
    largest = tl.max(tl.where(inside, logits, float("-inf")), 1, keep_dims=True)
    power = tl.exp(logits - largest)
    total = tl.sum(tl.where(inside, power, 0.0), 1, keep_dims=True)
    t1 = 1 / total
    score = power / total
    given = tl.zeros([ROWS, BLOCK], tl.float32)
    picked = tl.zeros([ROWS, BLOCK], tl.int32)
    for i in range(k):
        chosen = col == tl.load(ids_ptr + row * k + i, mask=live, other=-1)
        given = tl.where(chosen, tl.load(dweights_ptr + row * dweights_stride + i, mask=live, other=0.0), given)
        picked = tl.where(chosen, 1, picked)
    dscore = scaling * given
    if renormalize:
        total = tl.sum(tl.where(picked != 0, score, 0.0), 1, keep_dims=True) + eps
        dscore = (dscore - tl.sum(dscore * score, 1, keep_dims=True) / total) / total
        dscore = tl.where(picked != 0, dscore, 0.0)
    dtotal = tl.sum(tl.where(inside, dscore * power, 0.0), 1, keep_dims=True)
    dlogits = t1 * (dscore - dtotal * t1) * power
    tl.store(dlogits_ptr + row * WIDTH + col, dlogits, mask=inside)


class SoftmaxBiasRouter(torch.autograd.Function):
    """The k largest of softmax(logits) + bias."""

    @staticmethod
    def forward(ctx, logits, bias, k, renormalize, eps, scaling, groups, top_groups):
        rows, experts = Rows.of(logits), logits.shape[-1]
        logits_rows = rows.matrix(logits, experts)
        weights, ids = rows.empty(k, torch.float32), rows.empty(k, torch.int64)
        fit = tile(rows.count, experts, whole=4096)
        softmax_bias_router_forward[fit.grid](
            logits_rows, logits_rows.stride(0), vector(bias, experts), weights, ids, rows.count, WIDTH=experts, k=k,
            renormalize=renormalize, eps=eps, scaling=scaling, groups=groups, top_groups=top_groups,
            SLOTS=triton.next_power_of_2(k), **fit.options,
        )
        ctx.save_for_backward(logits, ids)
        ctx.rows, ctx.numbers = rows, (k, renormalize, eps, scaling)
        ctx.mark_non_differentiable(ids)
        return weights, ids

    @staticmethod
    @once_differentiable
    def backward(ctx, dweights, dids):
        logits, ids = ctx.saved_tensors
        rows, (k, renormalize, eps, scaling) = ctx.rows, ctx.numbers
        experts = logits.shape[-1]
        logits_rows, dweights_rows = rows.matrix(logits, experts), rows.matrix(dweights, k)
        dlogits = rows.empty(experts)
        fit = tile(rows.count, experts, whole=4096)
        softmax_bias_router_backward[fit.grid](
            logits_rows, logits_rows.stride(0), ids, dweights_rows, dweights_rows.stride(0), dlogits, rows.count,
            WIDTH=experts, k=k, renormalize=renormalize, eps=eps, scaling=scaling, **fit.options,
        )
        return dlogits, None, None, None, None, None, None, None


def softmax_bias_router(logits, bias, k, *, renormalize, eps=0.0, scaling=1.0, groups=1, top_groups=1):
    """The k largest of softmax(logits) + bias.

    logits [..., experts], bias [experts] -> weights [..., k] fp32, ids [..., k] int64, the best first. Weights
    are scores times `scaling`, divided by their sum and `eps` if `renormalize`; with `groups`, experts are from
    the `top_groups` groups with the largest sums of their two best.
    """
    return SoftmaxBiasRouter.apply(logits, bias, k, renormalize, eps, scaling, groups, top_groups)


@triton.jit
def softmax_router_forward(
    logits_ptr, logits_stride, weights_ptr, ids_ptr, rows, WIDTH: tl.constexpr, k: tl.constexpr,
    renormalize: tl.constexpr, eps: tl.constexpr, scaling: tl.constexpr, groups: tl.constexpr,
    top_groups: tl.constexpr, SLOTS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The k largest of softmax(logits)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    col = tl.arange(0, BLOCK)[None, :]
    inside = live & (col < WIDTH)
    logits = tl.load(logits_ptr + row * logits_stride + col, mask=inside, other=0.0).to(tl.float32)
    largest = tl.max(tl.where(inside, logits, float("-inf")), 1, keep_dims=True)
    power = tl.exp(logits - largest)
    total = tl.sum(tl.where(inside, power, 0.0), 1, keep_dims=True)
    score = power / total
    ranked = tl.where(col < WIDTH, tl.maximum(score, -1.0e38), float("-inf"))
    if top_groups < groups:
        ranked = within_groups(ranked, col, WIDTH, groups, top_groups)
    slot = tl.arange(0, SLOTS)[None, :]
    weights = tl.zeros([ROWS, SLOTS], tl.float32)
    for i in range(k):
        best = tl.minimum(tl.argmax(ranked, 1, keep_dims=True), WIDTH - 1)
        chosen = col == best
        weights = tl.where(slot == i, tl.sum(tl.where(chosen, score, 0.0), 1, keep_dims=True), weights)
        ranked = tl.where(chosen, float("-inf"), ranked)
        tl.store(ids_ptr + row * k + i, best, mask=live)
    if renormalize:
        weights = weights / (tl.sum(weights, 1, keep_dims=True) + eps)
    tl.store(weights_ptr + row * k + slot, scaling * weights, mask=live & (slot < k))


@triton.jit
def softmax_router_backward(
    logits_ptr, logits_stride, ids_ptr, dweights_ptr, dweights_stride, dlogits_ptr, rows, WIDTH: tl.constexpr,
    k: tl.constexpr, renormalize: tl.constexpr, eps: tl.constexpr, scaling: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of softmax_router."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    col = tl.arange(0, BLOCK)[None, :]
    inside = live & (col < WIDTH)
    logits = tl.load(logits_ptr + row * logits_stride + col, mask=inside, other=0.0).to(tl.float32)
    largest = tl.max(tl.where(inside, logits, float("-inf")), 1, keep_dims=True)
    power = tl.exp(logits - largest)
    total = tl.sum(tl.where(inside, power, 0.0), 1, keep_dims=True)
    t1 = 1 / total
    score = power / total
    given = tl.zeros([ROWS, BLOCK], tl.float32)
    picked = tl.zeros([ROWS, BLOCK], tl.int32)
    for i in range(k):
        chosen = col == tl.load(ids_ptr + row * k + i, mask=live, other=-1)
        given = tl.where(chosen, tl.load(dweights_ptr + row * dweights_stride + i, mask=live, other=0.0), given)
        picked = tl.where(chosen, 1, picked)
    dscore = scaling * given
    if renormalize:
        total = tl.sum(tl.where(picked != 0, score, 0.0), 1, keep_dims=True) + eps
        dscore = (dscore - tl.sum(dscore * score, 1, keep_dims=True) / total) / total
        dscore = tl.where(picked != 0, dscore, 0.0)
    dtotal = tl.sum(tl.where(inside, dscore * power, 0.0), 1, keep_dims=True)
    dlogits = t1 * (dscore - dtotal * t1) * power
    tl.store(dlogits_ptr + row * WIDTH + col, dlogits, mask=inside)


class SoftmaxRouter(torch.autograd.Function):
    """The k largest of softmax(logits)."""

    @staticmethod
    def forward(ctx, logits, k, renormalize, eps, scaling, groups, top_groups):
        rows, experts = Rows.of(logits), logits.shape[-1]
        logits_rows = rows.matrix(logits, experts)
        weights, ids = rows.empty(k, torch.float32), rows.empty(k, torch.int64)
        fit = tile(rows.count, experts, whole=4096)
        softmax_router_forward[fit.grid](
            logits_rows, logits_rows.stride(0), weights, ids, rows.count, WIDTH=experts, k=k,
            renormalize=renormalize, eps=eps, scaling=scaling, groups=groups, top_groups=top_groups,
            SLOTS=triton.next_power_of_2(k), **fit.options,
        )
        ctx.save_for_backward(logits, ids)
        ctx.rows, ctx.numbers = rows, (k, renormalize, eps, scaling)
        ctx.mark_non_differentiable(ids)
        return weights, ids

    @staticmethod
    @once_differentiable
    def backward(ctx, dweights, dids):
        logits, ids = ctx.saved_tensors
        rows, (k, renormalize, eps, scaling) = ctx.rows, ctx.numbers
        experts = logits.shape[-1]
        logits_rows, dweights_rows = rows.matrix(logits, experts), rows.matrix(dweights, k)
        dlogits = rows.empty(experts)
        fit = tile(rows.count, experts, whole=4096)
        softmax_router_backward[fit.grid](
            logits_rows, logits_rows.stride(0), ids, dweights_rows, dweights_rows.stride(0), dlogits, rows.count,
            WIDTH=experts, k=k, renormalize=renormalize, eps=eps, scaling=scaling, **fit.options,
        )
        return dlogits, None, None, None, None, None, None


def softmax_router(logits, k, *, renormalize, eps=0.0, scaling=1.0, groups=1, top_groups=1):
    """The k largest of softmax(logits).

    logits [..., experts] -> weights [..., k] fp32, ids [..., k] int64, the best first. Weights are scores times
    `scaling`, divided by their sum and `eps` if `renormalize`; with `groups`, experts are from the `top_groups`
    groups with the largest sums of their two best.
    """
    return SoftmaxRouter.apply(logits, k, renormalize, eps, scaling, groups, top_groups)


@triton.jit
def zero_centered_rmsnorm_forward(
    x_ptr, x_stride, weight_ptr, y_ptr, y_stride, rstd_ptr, rows, WIDTH: tl.constexpr, eps: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = x / sqrt(mean(x²) + eps) · (1 + weight)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        square += tl.sum(x * x, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        y = rstd * (weight + 1) * x
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def zero_centered_rmsnorm_backward(
    x_ptr, x_stride, weight_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of zero_centered_rmsnorm."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = (weight + 1) * dy
            drstd += tl.sum(t1 * x, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = (weight + 1) * dy
            dx = rstd * (t1 - drstd / WIDTH * rstd * rstd * x)
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * dy * x, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class ZeroCenteredRmsnorm(torch.autograd.Function):
    """y = x / sqrt(mean(x²) + eps) · (1 + weight)."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        rows = Rows.of(x)
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        y = rows.empty(width)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=16384)
        zero_centered_rmsnorm_forward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), y, width, rstd, rows.count, WIDTH=width, eps=eps,
            **fit.options,
        )
        ctx.save_for_backward(x, weight, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        zero_centered_rmsnorm_backward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), rstd, dy_rows, dy_rows.stride(0), dx, width, dweight,
            rows.count, WIDTH=width, **fit.options,
        )
        return dx, dweight.sum(0), None


def zero_centered_rmsnorm(x, weight, *, eps):
    """y = x / sqrt(mean(x²) + eps) · (1 + weight).

    x [..., width], weight [width] -> y [..., width].
    """
    return ZeroCenteredRmsnorm.apply(x, weight, eps)


@triton.jit
def zero_centered_rmsnorm_add_forward(
    x_ptr, x_stride, residual_ptr, residual_stride, weight_ptr, y_ptr, y_stride, rstd_ptr, rows,
    WIDTH: tl.constexpr, eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """y = residual + x / sqrt(mean(x²) + eps) · (1 + weight)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    live = row < rows
    x_row = x_ptr + row * x_stride
    residual_row = residual_ptr + row * residual_stride
    y_row = y_ptr + row * y_stride
    square = tl.full([ROWS, 1], 0.0, tl.float32)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        inside = live & (col < WIDTH)
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        square += tl.sum(x * x, 1, keep_dims=True)
    square = square / WIDTH
    rstd = tl.rsqrt(square + eps)
    for start in range(0, WIDTH, BLOCK):
        col = start + tl.arange(0, BLOCK)[None, :]
        there = col < WIDTH
        inside = live & there
        x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
        residual = tl.load(residual_row + col, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
        y = residual + rstd * (weight + 1) * x
        tl.store(y_row + col, y, mask=inside)
    tl.store(rstd_ptr + row, rstd, mask=live)


@triton.jit
def zero_centered_rmsnorm_add_backward(
    x_ptr, x_stride, weight_ptr, rstd_ptr, dy_ptr, dy_stride, dx_ptr, dx_stride, dweight_ptr, rows,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The gradients of zero_centered_rmsnorm_add."""
    dweight_sums = dweight_ptr + tl.program_id(0).to(tl.int64) * WIDTH
    dweight = tl.zeros([1, BLOCK], tl.float32)
    for part in range(tl.program_id(0).to(tl.int64), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        row = part * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
        live = row < rows
        x_row = x_ptr + row * x_stride
        dy_row = dy_ptr + row * dy_stride
        dx_row = dx_ptr + row * dx_stride
        rstd = tl.load(rstd_ptr + row, mask=live, other=0.0).to(tl.float32)
        drstd = tl.full([ROWS, 1], 0.0, tl.float32)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = (weight + 1) * dy
            drstd += tl.sum(t1 * x, 1, keep_dims=True)
        for start in range(0, WIDTH, BLOCK):
            col = start + tl.arange(0, BLOCK)[None, :]
            there = col < WIDTH
            inside = live & there
            x = tl.load(x_row + col, mask=inside, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + col, mask=there, other=0.0).to(tl.float32)
            dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
            t1 = (weight + 1) * dy
            dx = rstd * (t1 - drstd / WIDTH * rstd * rstd * x)
            tl.store(dx_row + col, dx, mask=inside)
            dweight_tile = tl.sum(rstd * dy * x, 0, keep_dims=True)
            dweight = add_columns(dweight, dweight_tile, dweight_sums + col, there, BLOCK >= WIDTH)
    if BLOCK >= WIDTH:
        col = tl.arange(0, BLOCK)[None, :]
        tl.store(dweight_sums + col, dweight, mask=col < WIDTH)


class ZeroCenteredRmsnormAdd(torch.autograd.Function):
    """y = residual + x / sqrt(mean(x²) + eps) · (1 + weight)."""

    @staticmethod
    def forward(ctx, x, residual, weight, eps):
        rows = Rows.of(x, like=[x, residual])
        width = x.shape[-1]
        x_rows = rows.matrix(x, width)
        residual_rows = rows.matrix(residual, width)
        y = rows.empty(width)
        rstd = rows.empty(1, torch.float32)
        fit = tile(rows.count, width, limit=8192)
        zero_centered_rmsnorm_add_forward[fit.grid](
            x_rows, x_rows.stride(0), residual_rows, residual_rows.stride(0), vector(weight, width), y, width, rstd,
            rows.count, WIDTH=width, eps=eps, **fit.options,
        )
        ctx.save_for_backward(x, weight, rstd)
        ctx.rows, ctx.width = rows, width
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, rstd = ctx.saved_tensors
        rows, width = ctx.rows, ctx.width
        x_rows = rows.matrix(x, width)
        dy_rows = rows.matrix(dy, width)
        dx = rows.empty(width)
        fit = tile(rows.count, width, limit=8192, programs=rows.shares)
        dweight = rows.zeros(fit.grid[0], width)
        zero_centered_rmsnorm_add_backward[fit.grid](
            x_rows, x_rows.stride(0), vector(weight, width), rstd, dy_rows, dy_rows.stride(0), dx, width, dweight,
            rows.count, WIDTH=width, **fit.options,
        )
        return dx, dy, dweight.sum(0), None


def zero_centered_rmsnorm_add(x, residual, weight, *, eps):
    """y = residual + x / sqrt(mean(x²) + eps) · (1 + weight).

    x [..., width], residual [..., width], weight [width] -> y [..., width].
    """
    return ZeroCenteredRmsnormAdd.apply(x, residual, weight, eps)


VARIANTS = (
    form(add_layernorm_forward, 4096, limit=8192, types={"center": "fp32", "rstd": "fp32"}, constants={"eps": 1e-5}),
    form(
        add_layernorm_backward, 4096, limit=4096,
        types={"center": "fp32", "rstd": "fp32", "dweight": "fp32", "dbias": "fp32"},
    ),
    form(
        add_layernorm_without_bias_forward, 4096, limit=8192, types={"center": "fp32", "rstd": "fp32"},
        constants={"eps": 1e-5},
    ),
    form(
        add_layernorm_without_bias_backward, 4096, limit=8192,
        types={"center": "fp32", "rstd": "fp32", "dweight": "fp32"},
    ),
    form(add_plain_rmsnorm_forward, 4096, limit=8192, types={"rstd": "fp32"}, constants={"eps": 1e-5}),
    form(add_plain_rmsnorm_backward, 4096, limit=8192, types={"rstd": "fp32"}),
    form(add_rmsnorm_forward, 4096, limit=8192, types={"rstd": "fp32"}, constants={"eps": 1e-5}),
    form(add_rmsnorm_backward, 4096, limit=8192, types={"rstd": "fp32", "dweight": "fp32"}),
    form(
        add_rmsnorm_e4m3_block_forward, 4096, limit=8192, least=128,
        types={"y": "fp8e4nv", "y_scale": "fp32", "rstd": "fp32"}, constants={"eps": 1e-5}, targets=(90, 100),
    ),
    form(add_rmsnorm_e4m3_block_backward, 4096, limit=8192, types={"rstd": "fp32", "dweight": "fp32"}),
    form(
        add_rmsnorm_e4m3_row_forward, 4096, limit=8192, types={"y": "fp8e4nv", "y_scale": "fp32", "rstd": "fp32"},
        constants={"eps": 1e-5}, targets=(90, 100),
    ),
    form(add_rmsnorm_e4m3_row_backward, 4096, limit=8192, types={"rstd": "fp32", "dweight": "fp32"}),
    form(
        add_rmsnorm_int8_row_forward, 4096, limit=8192, types={"y": "i8", "y_scale": "fp32", "rstd": "fp32"},
        constants={"eps": 1e-5},
    ),
    form(add_rmsnorm_int8_row_backward, 4096, limit=8192, types={"rstd": "fp32", "dweight": "fp32"}),
    form(add_zero_centered_rmsnorm_forward, 4096, limit=8192, types={"rstd": "fp32"}, constants={"eps": 1e-5}),
    form(add_zero_centered_rmsnorm_backward, 4096, limit=8192, types={"rstd": "fp32", "dweight": "fp32"}),
    form(clamped_swiglu_forward, 4096, columns=True, constants={"beta": 1.702, "limit": 7.0, "offset": 1.0}),
    form(clamped_swiglu_backward, 4096, columns=True, constants={"beta": 1.702, "limit": 7.0, "offset": 1.0}),
    form(clamped_swiglu_pairs_forward, 4096, columns=True, constants={"beta": 1.702, "limit": 7.0, "offset": 1.0}),
    form(clamped_swiglu_pairs_backward, 4096, columns=True, constants={"beta": 1.702, "limit": 7.0, "offset": 1.0}),
    form(
        dequantize_block_forward, 4096, columns=True, types={"codes": "fp8e4nv", "factor": "fp32"},
        targets=(90, 100),
    ),
    form(
        dequantize_block_backward, 4096, limit=16384,
        types={"codes": "fp8e4nv", "factor": "fp32", "dscale": "fp32"}, targets=(90, 100),
    ),
    form(dequantize_row_forward, 4096, columns=True, types={"codes": "fp8e4nv"}, targets=(90, 100)),
    form(
        dequantize_row_backward, 4096, limit=8192, types={"codes": "fp8e4nv", "dscale": "fp32", "dweight": "fp32"},
        targets=(90, 100),
    ),
    form(gated_rmsnorm_sigmoid_forward, 128, limit=8192, segments=8, types={"rstd": "fp32"}, constants={"eps": 1e-5}),
    form(gated_rmsnorm_sigmoid_backward, 128, limit=4096, segments=8, types={"rstd": "fp32", "dweight": "fp32"}),
    form(gated_rmsnorm_silu_forward, 128, limit=8192, segments=8, types={"rstd": "fp32"}, constants={"eps": 1e-5}),
    form(gated_rmsnorm_silu_backward, 128, limit=4096, segments=8, types={"rstd": "fp32", "dweight": "fp32"}),
    form(gelu_forward, 4096, columns=True),
    form(gelu_backward, 4096, columns=True),
    form(gelu_gate_forward, 4096, columns=True),
    form(gelu_gate_backward, 4096, columns=True),
    form(gelu_glu_forward, 4096, columns=True),
    form(gelu_glu_backward, 4096, columns=True),
    form(gelu_tanh_forward, 4096, columns=True),
    form(gelu_tanh_backward, 4096, columns=True),
    form(gelu_tanh_gate_forward, 4096, columns=True),
    form(gelu_tanh_gate_backward, 4096, columns=True),
    form(gelu_tanh_glu_forward, 4096, columns=True),
    form(gelu_tanh_glu_backward, 4096, columns=True),
    form(
        head_gated_rmsnorm_sigmoid_forward, 128, limit=8192, segments=8, types={"rstd": "fp32"},
        constants={"eps": 1e-5},
    ),
    form(head_gated_rmsnorm_sigmoid_backward, 128, limit=4096, segments=8, types={"rstd": "fp32", "dweight": "fp32"}),
    form(
        head_gated_rmsnorm_silu_forward, 128, limit=8192, segments=8, types={"rstd": "fp32"},
        constants={"eps": 1e-5},
    ),
    form(head_gated_rmsnorm_silu_backward, 128, limit=4096, segments=8, types={"rstd": "fp32", "dweight": "fp32"}),
    form(
        head_layernorm_forward, 128, limit=8192, segments=8, types={"center": "fp32", "rstd": "fp32"},
        constants={"eps": 1e-5},
    ),
    form(
        head_layernorm_backward, 128, limit=8192, segments=8,
        types={"center": "fp32", "rstd": "fp32", "dweight": "fp32", "dbias": "fp32"},
    ),
    form(
        head_layernorm_without_bias_forward, 128, limit=8192, segments=8, types={"center": "fp32", "rstd": "fp32"},
        constants={"eps": 1e-5},
    ),
    form(
        head_layernorm_without_bias_backward, 128, limit=8192, segments=8,
        types={"center": "fp32", "rstd": "fp32", "dweight": "fp32"},
    ),
    form(head_plain_rmsnorm_forward, 128, limit=16384, segments=8, types={"rstd": "fp32"}, constants={"eps": 1e-5}),
    form(head_plain_rmsnorm_backward, 128, limit=16384, segments=8, types={"rstd": "fp32"}),
    form(head_rmsnorm_forward, 128, limit=16384, segments=8, types={"rstd": "fp32"}, constants={"eps": 1e-5}),
    form(head_rmsnorm_backward, 128, limit=8192, segments=8, types={"rstd": "fp32", "dweight": "fp32"}),
    form(
        head_rmsnorm_gated_sigmoid_forward, 128, limit=8192, segments=8, types={"rstd": "fp32"},
        constants={"eps": 1e-5},
    ),
    form(head_rmsnorm_gated_sigmoid_backward, 128, limit=4096, segments=8, types={"rstd": "fp32", "dweight": "fp32"}),
    form(
        head_rmsnorm_gated_silu_forward, 128, limit=8192, segments=8, types={"rstd": "fp32"},
        constants={"eps": 1e-5},
    ),
    form(head_rmsnorm_gated_silu_backward, 128, limit=4096, segments=8, types={"rstd": "fp32", "dweight": "fp32"}),
    form(
        head_zero_centered_rmsnorm_forward, 128, limit=16384, segments=8, types={"rstd": "fp32"},
        constants={"eps": 1e-5},
    ),
    form(head_zero_centered_rmsnorm_backward, 128, limit=8192, segments=8, types={"rstd": "fp32", "dweight": "fp32"}),
    form(l2norm_forward, 4096, limit=16384, types={"scale": "fp32"}, constants={"eps": 1e-5}),
    form(l2norm_backward, 4096, limit=16384, types={"scale": "fp32"}),
    form(layer_scaled_add_forward, 4096, columns=True),
    form(layer_scaled_add_backward, 4096, columns=True, types={"dweight": "fp32"}),
    form(layernorm_forward, 4096, limit=8192, types={"center": "fp32", "rstd": "fp32"}, constants={"eps": 1e-5}),
    form(
        layernorm_backward, 4096, limit=8192,
        types={"center": "fp32", "rstd": "fp32", "dweight": "fp32", "dbias": "fp32"},
    ),
    form(layernorm_add_forward, 4096, limit=8192, types={"center": "fp32", "rstd": "fp32"}, constants={"eps": 1e-5}),
    form(
        layernorm_add_backward, 4096, limit=8192,
        types={"center": "fp32", "rstd": "fp32", "dweight": "fp32", "dbias": "fp32"},
    ),
    form(
        layernorm_e4m3_block_forward, 4096, limit=8192, least=128,
        types={"y": "fp8e4nv", "y_scale": "fp32", "center": "fp32", "rstd": "fp32"}, constants={"eps": 1e-5},
        targets=(90, 100),
    ),
    form(
        layernorm_e4m3_block_backward, 4096, limit=8192,
        types={"center": "fp32", "rstd": "fp32", "dweight": "fp32", "dbias": "fp32"},
    ),
    form(
        layernorm_without_bias_forward, 4096, limit=8192, types={"center": "fp32", "rstd": "fp32"},
        constants={"eps": 1e-5},
    ),
    form(
        layernorm_without_bias_backward, 4096, limit=8192,
        types={"center": "fp32", "rstd": "fp32", "dweight": "fp32"},
    ),
    form(
        layernorm_without_bias_add_forward, 4096, limit=8192, types={"center": "fp32", "rstd": "fp32"},
        constants={"eps": 1e-5},
    ),
    form(
        layernorm_without_bias_add_backward, 4096, limit=8192,
        types={"center": "fp32", "rstd": "fp32", "dweight": "fp32"},
    ),
    form(plain_rmsnorm_forward, 4096, limit=16384, types={"rstd": "fp32"}, constants={"eps": 1e-5}),
    form(plain_rmsnorm_backward, 4096, limit=16384, types={"rstd": "fp32"}),
    form(plain_rmsnorm_add_forward, 4096, limit=16384, types={"rstd": "fp32"}, constants={"eps": 1e-5}),
    form(plain_rmsnorm_add_backward, 4096, limit=16384, types={"rstd": "fp32"}),
    form(relu_forward, 4096, columns=True),
    form(relu_backward, 4096, columns=True),
    form(relu2_forward, 4096, columns=True),
    form(relu2_backward, 4096, columns=True),
    form(relu2_gate_forward, 4096, columns=True),
    form(relu2_gate_backward, 4096, columns=True),
    form(relu2_glu_forward, 4096, columns=True),
    form(relu2_glu_backward, 4096, columns=True),
    form(relu2_glu_int8_row_forward, 4096, limit=8192, types={"y": "i8", "y_scale": "fp32"}),
    form(relu2_glu_int8_row_backward, 4096, columns=True),
    form(relu_gate_forward, 4096, columns=True),
    form(relu_gate_backward, 4096, columns=True),
    form(relu_glu_forward, 4096, columns=True),
    form(relu_glu_backward, 4096, columns=True),
    form(rmsnorm_forward, 4096, limit=16384, types={"rstd": "fp32"}, constants={"eps": 1e-5}),
    form(rmsnorm_backward, 4096, limit=8192, types={"rstd": "fp32", "dweight": "fp32"}),
    form(rmsnorm_add_forward, 4096, limit=8192, types={"rstd": "fp32"}, constants={"eps": 1e-5}),
    form(rmsnorm_add_backward, 4096, limit=8192, types={"rstd": "fp32", "dweight": "fp32"}),
    form(
        rmsnorm_e4m3_block_forward, 4096, limit=16384, least=128,
        types={"y": "fp8e4nv", "y_scale": "fp32", "rstd": "fp32"}, constants={"eps": 1e-5}, targets=(90, 100),
    ),
    form(rmsnorm_e4m3_block_backward, 4096, limit=8192, types={"rstd": "fp32", "dweight": "fp32"}),
    form(
        rmsnorm_e4m3_row_forward, 4096, limit=16384, types={"y": "fp8e4nv", "y_scale": "fp32", "rstd": "fp32"},
        constants={"eps": 1e-5}, targets=(90, 100),
    ),
    form(rmsnorm_e4m3_row_backward, 4096, limit=8192, types={"rstd": "fp32", "dweight": "fp32"}),
    form(rmsnorm_gated_sigmoid_forward, 128, limit=8192, segments=8, types={"rstd": "fp32"}, constants={"eps": 1e-5}),
    form(rmsnorm_gated_sigmoid_backward, 128, limit=4096, segments=8, types={"rstd": "fp32", "dweight": "fp32"}),
    form(rmsnorm_gated_silu_forward, 128, limit=8192, segments=8, types={"rstd": "fp32"}, constants={"eps": 1e-5}),
    form(rmsnorm_gated_silu_backward, 128, limit=4096, segments=8, types={"rstd": "fp32", "dweight": "fp32"}),
    form(
        rmsnorm_int8_row_forward, 4096, limit=16384, types={"y": "i8", "y_scale": "fp32", "rstd": "fp32"},
        constants={"eps": 1e-5},
    ),
    form(rmsnorm_int8_row_backward, 4096, limit=8192, types={"rstd": "fp32", "dweight": "fp32"}),
    form(rope_halves_forward, 128, limit=8192, segments=8, types={"cos": "fp32", "sin": "fp32"}),
    form(rope_halves_backward, 128, limit=8192, segments=8, types={"cos": "fp32", "sin": "fp32"}),
    form(rope_pairs_forward, 128, limit=8192, segments=8, types={"cos": "fp32", "sin": "fp32"}),
    form(rope_pairs_backward, 128, limit=8192, segments=8, types={"cos": "fp32", "sin": "fp32"}),
    form(scaled_add_forward, 4096, columns=True, constants={"factor": 0.5}),
    form(scaled_add_backward, 4096, columns=True, constants={"factor": 0.5}),
    form(
        scaled_add_layernorm_forward, 4096, limit=8192, types={"center": "fp32", "rstd": "fp32"},
        constants={"factor": 0.5, "eps": 1e-5},
    ),
    form(
        scaled_add_layernorm_backward, 4096, limit=4096,
        types={"center": "fp32", "rstd": "fp32", "dweight": "fp32", "dbias": "fp32"}, constants={"factor": 0.5},
    ),
    form(
        scaled_add_layernorm_without_bias_forward, 4096, limit=8192, types={"center": "fp32", "rstd": "fp32"},
        constants={"factor": 0.5, "eps": 1e-5},
    ),
    form(
        scaled_add_layernorm_without_bias_backward, 4096, limit=8192,
        types={"center": "fp32", "rstd": "fp32", "dweight": "fp32"}, constants={"factor": 0.5},
    ),
    form(
        scaled_add_plain_rmsnorm_forward, 4096, limit=8192, types={"rstd": "fp32"},
        constants={"factor": 0.5, "eps": 1e-5},
    ),
    form(scaled_add_plain_rmsnorm_backward, 4096, limit=8192, types={"rstd": "fp32"}, constants={"factor": 0.5}),
    form(
        scaled_add_rmsnorm_forward, 4096, limit=8192, types={"rstd": "fp32"},
        constants={"factor": 0.5, "eps": 1e-5},
    ),
    form(
        scaled_add_rmsnorm_backward, 4096, limit=8192, types={"rstd": "fp32", "dweight": "fp32"},
        constants={"factor": 0.5},
    ),
    form(
        scaled_add_zero_centered_rmsnorm_forward, 4096, limit=8192, types={"rstd": "fp32"},
        constants={"factor": 0.5, "eps": 1e-5},
    ),
    form(
        scaled_add_zero_centered_rmsnorm_backward, 4096, limit=8192, types={"rstd": "fp32", "dweight": "fp32"},
        constants={"factor": 0.5},
    ),
    form(scaled_silu_glu_forward, 4096, columns=True, constants={"factor": 0.5}),
    form(scaled_silu_glu_backward, 4096, columns=True, constants={"factor": 0.5}),
    form(
        sigmoid_bias_router_forward, 256, whole=4096, types={"weights": "fp32", "ids": "i64", "bias": "fp32"},
        constants={"renormalize": True, "eps": 0.0, "scaling": 1.0, "groups": 1, "top_groups": 1, "k": 8, "SLOTS": 8},
    ),
    form(
        sigmoid_bias_router_backward, 256, whole=4096, types={"ids": "i64", "dweights": "fp32"},
        constants={"k": 8, "renormalize": True, "eps": 0.0, "scaling": 1.0},
    ),
    form(sigmoid_gate_forward, 4096, columns=True),
    form(sigmoid_gate_backward, 4096, columns=True),
    form(
        sigmoid_router_forward, 256, whole=4096, types={"weights": "fp32", "ids": "i64"},
        constants={"renormalize": True, "eps": 0.0, "scaling": 1.0, "groups": 1, "top_groups": 1, "k": 8, "SLOTS": 8},
    ),
    form(
        sigmoid_router_backward, 256, whole=4096, types={"ids": "i64", "dweights": "fp32"},
        constants={"k": 8, "renormalize": True, "eps": 0.0, "scaling": 1.0},
    ),
    form(sigmoid_row_gate_forward, 4096, columns=True),
    form(sigmoid_row_gate_backward, 4096, limit=16384, types={"dgate": "fp32"}),
    form(silu_forward, 4096, columns=True),
    form(silu_backward, 4096, columns=True),
    form(silu_gate_forward, 4096, columns=True),
    form(silu_gate_backward, 4096, columns=True),
    form(silu_glu_forward, 4096, columns=True),
    form(silu_glu_backward, 4096, columns=True),
    form(
        silu_glu_e4m3_block_forward, 4096, columns=True, least=128, types={"y": "fp8e4nv", "y_scale": "fp32"},
        targets=(90, 100),
    ),
    form(silu_glu_e4m3_block_backward, 4096, columns=True),
    form(silu_glu_e4m3_row_forward, 4096, limit=16384, types={"y": "fp8e4nv", "y_scale": "fp32"}, targets=(90, 100)),
    form(silu_glu_e4m3_row_backward, 4096, columns=True),
    form(softcap_forward, 4096, columns=True, constants={"cap": 30.0}),
    form(softcap_backward, 4096, columns=True, constants={"cap": 30.0}),
    form(softmax_forward, 4096, limit=16384, types={"largest": "fp32", "total": "fp32"}),
    form(softmax_backward, 4096, limit=16384, types={"largest": "fp32", "total": "fp32"}),
    form(
        softmax_bias_router_forward, 256, whole=4096, types={"weights": "fp32", "ids": "i64", "bias": "fp32"},
        constants={"renormalize": True, "eps": 0.0, "scaling": 1.0, "groups": 1, "top_groups": 1, "k": 8, "SLOTS": 8},
    ),
    form(
        softmax_bias_router_backward, 256, whole=4096, types={"ids": "i64", "dweights": "fp32"},
        constants={"k": 8, "renormalize": True, "eps": 0.0, "scaling": 1.0},
    ),
    form(
        softmax_router_forward, 256, whole=4096, types={"weights": "fp32", "ids": "i64"},
        constants={"renormalize": True, "eps": 0.0, "scaling": 1.0, "groups": 1, "top_groups": 1, "k": 8, "SLOTS": 8},
    ),
    form(
        softmax_router_backward, 256, whole=4096, types={"ids": "i64", "dweights": "fp32"},
        constants={"k": 8, "renormalize": True, "eps": 0.0, "scaling": 1.0},
    ),
    form(zero_centered_rmsnorm_forward, 4096, limit=16384, types={"rstd": "fp32"}, constants={"eps": 1e-5}),
    form(zero_centered_rmsnorm_backward, 4096, limit=8192, types={"rstd": "fp32", "dweight": "fp32"}),
    form(zero_centered_rmsnorm_add_forward, 4096, limit=8192, types={"rstd": "fp32"}, constants={"eps": 1e-5}),
    form(zero_centered_rmsnorm_add_backward, 4096, limit=8192, types={"rstd": "fp32", "dweight": "fp32"}),
)
"""What is compiled ahead of time."""
