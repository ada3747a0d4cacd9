//! Conversion of stored tensors to weights, in the precision of the file and canonical orientation.
//!
//! Data is copied only if it must be transposed or has a type that weights do not have.

use std::path::Path;
use std::sync::Arc;

use peregrine_formats::{Bytes, DType, Tensor};

use crate::{ModelError, Precision, Weight};

/// A float tensor as a weight. Integers have no meaning without a scale and are refused.
pub(crate) fn float_weight(path: &Path, name: &str, tensor: &Tensor) -> Result<Weight, ModelError> {
    let precision = match tensor.dtype {
        DType::F32 => Precision::Float32,
        DType::F16 => Precision::Float16,
        DType::BF16 => Precision::Bfloat16,
        DType::F64 => return widened(path, name, tensor),
        other => {
            let problem =
                format!("tensor {name} holds {}, floating point was expected", other.name());
            return Err(ModelError::invalid(path, problem));
        }
    };
    let shape = tensor.shape.clone();
    Ok(Weight { shape, precision, data: tensor.data.clone(), scales: None })
}

fn widened(path: &Path, name: &str, tensor: &Tensor) -> Result<Weight, ModelError> {
    let values = tensor
        .to_f32()
        .ok_or_else(|| ModelError::invalid(path, format!("tensor {name} cannot be converted")))?;
    Ok(Weight::from_f32(tensor.shape.clone(), &values))
}

/// An integer tensor as a weight; `scales` has one scale for all rows, or one a row.
pub(crate) fn integer_weight(
    path: &Path,
    name: &str,
    precision: Precision,
    shape: &[usize],
    data: Bytes,
    scales: Vec<f32>,
) -> Result<Weight, ModelError> {
    let bytes = shape.iter().product::<usize>() * precision.size();
    if data.len() != bytes {
        let problem = format!("tensor {name}: {} bytes, expected {bytes}", data.len());
        return Err(ModelError::invalid(path, problem));
    }
    let rows = shape.first().copied().unwrap_or(1);
    if scales.len() != 1 && scales.len() != rows {
        let problem = format!("tensor {name}: {} scales for {rows} rows", scales.len());
        return Err(ModelError::invalid(path, problem));
    }
    if let Some(bad) = scales.iter().find(|s| !s.is_finite()) {
        return Err(ModelError::invalid(path, format!("tensor {name}: a scale is {bad}")));
    }
    Ok(Weight { shape: shape.to_vec(), precision, data, scales: Some(Arc::from(scales)) })
}

/// The elements of a weight as a tensor, without its scales. Shares the bytes.
pub(crate) fn stored(weight: &Weight) -> Tensor {
    let dtype = match weight.precision {
        Precision::Float32 => DType::F32,
        Precision::Float16 => DType::F16,
        Precision::Bfloat16 => DType::BF16,
        Precision::Int16 => DType::I16,
        Precision::Int8 => DType::I8,
    };
    Tensor { dtype, shape: weight.shape.clone(), data: weight.data.clone() }
}

/// A (1, n) or (n, 1) tensor as a vector; matrices are unchanged.
pub(crate) fn as_vector(mut weight: Weight) -> Weight {
    let longest = weight.shape.iter().copied().max().unwrap_or(1);
    if weight.elements() == longest {
        weight.shape = vec![longest];
    }
    weight
}

/// Part `index` of `parts` equal groups of rows, such as one of several fused projections. Shares
/// the bytes.
pub(crate) fn row_group(weight: &Weight, index: usize, parts: usize) -> Option<Weight> {
    let rows = weight.rows();
    if parts == 0 || !rows.is_multiple_of(parts) || index >= parts {
        return None;
    }
    rows_of(weight, index * (rows / parts), rows / parts)
}

/// `count` rows from `first` on. Shares the bytes.
pub(crate) fn rows_of(weight: &Weight, first: usize, count: usize) -> Option<Weight> {
    let row_bytes = weight.columns() * weight.precision.size();
    let end = first.checked_add(count).filter(|&end| end <= weight.rows())?;
    let mut shape = weight.shape.clone();
    *shape.first_mut()? = count;
    let scales = weight.scales.as_ref().map(|scales| match scales.len() {
        1 => scales.clone(),
        _ => Arc::from(&scales[first..end]),
    });
    let data = weight.data.slice(first * row_bytes..end * row_bytes);
    Some(Weight { shape, precision: weight.precision, data, scales })
}

/// Concatenates weights with rows of one length. The result has their floating-point type if it is
/// the same for all, and float32 otherwise.
pub(crate) fn joined(parts: &[Weight]) -> Weight {
    let same = |w: &Weight| w.precision == parts[0].precision && w.scales.is_none();
    if !parts.iter().all(same) {
        let floats: Vec<Weight> = parts.iter().map(|w| w.convert(Precision::Float32)).collect();
        return joined(&floats);
    }
    let mut shape = parts[0].shape.clone();
    if let Some(rows) = shape.first_mut() {
        *rows = parts.iter().map(Weight::rows).sum();
    }
    let data: Vec<u8> = parts.iter().flat_map(|w| w.data.iter().copied()).collect();
    Weight { shape, precision: parts[0].precision, data: Bytes::from(data), scales: None }
}

/// Reorders equal groups of rows; a weight that cannot be divided into them is unchanged.
pub(crate) fn blocks(weight: &Weight, parts: usize, order: &[usize]) -> Weight {
    let groups: Option<Vec<Weight>> =
        order.iter().map(|&index| row_group(weight, index, parts)).collect();
    groups.map_or_else(|| weight.clone(), |groups| joined(&groups))
}

/// The transpose of a matrix; other weights are unchanged. Integers with one scale a row become
/// float32 first, because the scales would belong to columns (no known file needs it).
pub(crate) fn transposed(weight: &Weight) -> Weight {
    let &[rows, columns] = weight.shape.as_slice() else { return weight.clone() };
    if weight.scales.as_ref().is_some_and(|s| s.len() > 1) {
        return transposed(&weight.convert(Precision::Float32));
    }
    let data = match weight.precision.size() {
        4 => transpose::<4>(&weight.data, rows, columns),
        2 => transpose::<2>(&weight.data, rows, columns),
        _ => transpose::<1>(&weight.data, rows, columns),
    };
    weight.data.release();
    Weight {
        shape: vec![columns, rows],
        precision: weight.precision,
        data: Bytes::from(data),
        scales: weight.scales.clone(),
    }
}

/// Side of the square tiles: a tile of float32 is 4 KiB, so input and output stay in L1.
const TILE: usize = 32;

fn transpose<const N: usize>(data: &[u8], rows: usize, columns: usize) -> Vec<u8> {
    let (input, _) = data.as_chunks::<N>();
    let mut output = vec![[0; N]; input.len()];
    for top in (0..rows).step_by(TILE) {
        for left in (0..columns).step_by(TILE) {
            for column in left..columns.min(left + TILE) {
                let line = &mut output[column * rows..][..rows];
                for row in top..rows.min(top + TILE) {
                    line[row] = input[row * columns + column];
                }
            }
        }
    }
    output.into_flattened()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(rows: usize, columns: usize) -> Weight {
        let values: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
        Weight::from_f32(vec![rows, columns], &values)
    }

    #[test]
    fn transposing_moves_every_element() {
        for (rows, columns) in [(1, 1), (3, 5), (32, 32), (33, 70), (100, 7)] {
            for precision in [Precision::Float32, Precision::Float16] {
                let weight = counting(rows, columns).convert(precision);
                let transpose = transposed(&weight);
                assert_eq!(transpose.shape, [columns, rows]);
                let (before, after) = (weight.to_f32(), transpose.to_f32());
                for (i, value) in before.iter().enumerate() {
                    assert_eq!(after[(i % columns) * rows + i / columns], *value);
                }
            }
        }
    }

    #[test]
    fn rows_come_apart_with_their_scales() {
        let weight = counting(6, 4).convert(Precision::Int8);
        let whole = weight.to_f32();
        let last = row_group(&weight, 2, 3).unwrap();
        assert_eq!(last.shape, [2, 4]);
        assert_eq!(*last.to_f32(), whole[16..]);
        assert!(row_group(&weight, 0, 4).is_none());
        assert!(row_group(&weight, 3, 3).is_none());
        assert!(rows_of(&weight, 5, usize::MAX).is_none());
    }

    #[test]
    fn only_vectors_are_flattened() {
        let shape = |shape: Vec<usize>| {
            let elements = shape.iter().product();
            as_vector(Weight::from_f32(shape, &vec![0.0; elements])).shape
        };
        assert_eq!(shape(vec![1, 5]), [5]);
        assert_eq!(shape(vec![5, 1]), [5]);
        assert_eq!(shape(vec![]), [1]);
        assert_eq!(shape(vec![2, 3]), [2, 3]);
    }
}
