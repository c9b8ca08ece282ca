//! Passes through operations with their own derivative, compared with candle's pass.

use candle_core::{Device, Tensor, TensorId, Var};
use telegrad_autograd::AutogradBackend;
use telegrad_autograd::candle::{Candle, operation};

fn var(values: &[f64]) -> Var {
    Var::new(values, &Device::Cpu).unwrap()
}

fn tensor(values: &[f64]) -> Tensor {
    Tensor::new(values, &Device::Cpu).unwrap()
}

/// The product, with its own derivative.
fn product(a: &Tensor, b: &Tensor) -> Tensor {
    let value = (a.detach() * b.detach()).unwrap();
    operation("product", &[a, b], value, |pass| {
        let gradient = |nth: usize| pass.wanted[nth].then(|| &pass.grad * &pass.args[1 - nth]);
        Ok(vec![gradient(0).transpose()?, gradient(1).transpose()?])
    })
    .unwrap()
}

/// Computes the gradients of these leaves from roots with gradients.
fn gradients(roots: &[(Tensor, Option<Tensor>)], leaves: &[&Var]) -> Vec<Option<Vec<f64>>> {
    let ids: Vec<TensorId> = leaves.iter().map(|leaf| leaf.id()).collect();
    let found = Candle.vjp(roots, &ids).unwrap();
    let of = |id: &TensorId| found.iter().find(|(leaf, _)| leaf == id);
    let values = |id| of(id).map(|(_, gradient)| gradient.to_vec1().unwrap());
    ids.iter().map(values).collect()
}

#[test]
fn a_leaf_that_is_a_root_gets_the_given_gradient() {
    let x = var(&[1.0, 2.0]);
    let given = tensor(&[3.0, 4.0]);
    let root = (x.as_tensor().clone(), Some(given));
    let once = gradients(std::slice::from_ref(&root), &[&x]);
    assert_eq!(once, [Some(vec![3.0, 4.0])]);
    let twice = gradients(&[root.clone(), root], &[&x]);
    assert_eq!(twice, [Some(vec![6.0, 8.0])]);
}

#[test]
fn a_root_without_a_gradient_gets_ones() {
    let x = var(&[5.0]);
    let y = product(&x, &x);
    assert_eq!(gradients(&[(y, None)], &[&x]), [Some(vec![10.0])]);
}

#[test]
fn a_result_used_twice_gets_the_sum_of_both_gradients() {
    let (x, w) = (var(&[2.0, 3.0]), var(&[5.0, 7.0]));
    let y = product(&x, &w);
    let z = product(&y, &product(&y, &x));
    // x³w²
    let found = gradients(&[(z, Some(tensor(&[1.0, 1.0])))], &[&x, &w]);
    let by_x = vec![3.0 * 4.0 * 25.0, 3.0 * 9.0 * 49.0];
    let by_w = vec![2.0 * 8.0 * 5.0, 2.0 * 27.0 * 7.0];
    assert_eq!(found, [Some(by_x), Some(by_w)]);
}

#[test]
fn a_root_behind_another_root_gets_both_gradients() {
    let x = var(&[2.0]);
    let y = product(&x, &x);
    let z = product(&y, &y);
    let roots = [(y, Some(tensor(&[100.0]))), (z, Some(tensor(&[1.0])))];
    let back = [roots[1].clone(), roots[0].clone()];
    // 100x² + x⁴
    assert_eq!(gradients(&roots, &[&x]), [Some(vec![432.0])]);
    assert_eq!(gradients(&back, &[&x]), [Some(vec![432.0])]);
}

#[test]
fn operations_of_candle_may_precede_separate_and_follow() {
    let (x, w) = (var(&[2.0, 3.0]), var(&[5.0, 7.0]));
    let below = (x.as_tensor() * 3.0).unwrap();
    let first = product(&below, &w);
    let between = first.sqr().unwrap();
    // Two paths reach the first product: one through candle's square, and one without.
    let second = product(&between, &first);
    let above = (&second + &second).unwrap();
    // 2(3xw)³
    let one = |x: f64, w: f64| (162.0 * x * x * w * w * w, 162.0 * x * x * x * w * w);
    let ((x0, w0), (x1, w1)) = (one(2.0, 5.0), one(3.0, 7.0));
    for root in [above, product(&second, &tensor(&[2.0, 2.0]))] {
        let found = gradients(&[(root, Some(tensor(&[1.0, 1.0])))], &[&x, &w]);
        assert_eq!(found, [Some(vec![x0, x1]), Some(vec![w0, w1])]);
    }
}

#[test]
fn candle_computes_the_same_gradients() {
    let (x, w) = (var(&[2.0, 3.0]), var(&[5.0, 7.0]));
    let y = product(&product(&x, &w), &product(&x, &tensor(&[2.0, 2.0])));
    let by_candle = y.sum_all().unwrap().backward().unwrap();
    let found = gradients(&[(y, Some(tensor(&[1.0, 1.0])))], &[&x, &w]);
    for (leaf, found) in [&x, &w].into_iter().zip(found) {
        assert_eq!(
            by_candle.get(leaf).unwrap().to_vec1::<f64>().unwrap(),
            found.unwrap()
        );
    }
}

#[test]
fn a_gradient_of_another_shape_is_an_error() {
    let x = var(&[1.0, 2.0]);
    let value = x.as_detached_tensor().sqr().unwrap();
    let y = operation("sum", &[&x], value, |pass| Ok(vec![Some(pass.grad.sum_all()?)])).unwrap();
    let error = Candle
        .vjp(&[(y, Some(tensor(&[1.0, 1.0])))], &[x.id()])
        .unwrap_err();
    assert!(
        error.to_string().contains("was found for a tensor of F64 [2]"),
        "{error}"
    );
}

#[test]
fn a_deep_graph_of_operations_is_traversed_and_freed() {
    let x = var(&[1.0]);
    let mut y = x.as_tensor().clone();
    for _ in 0..20_000 {
        y = product(&y, &tensor(&[1.0]));
    }
    let root = (y, Some(tensor(&[2.0])));
    assert_eq!(gradients(std::slice::from_ref(&root), &[&x]), [Some(vec![2.0])]);
    Candle.discard(root);
}
