use candle_core::{DType, Device, Tensor};
use telegrad_nn::{Lstm, LstmCell, LstmState, Module, NnError, Result, Rng};

use crate::gradient::{check, check_module, check_parameters, near, numbers, random};

fn cell(inputs: usize, hidden: usize, seed: u64) -> LstmCell {
    LstmCell::from_tensors(
        &random(&[4 * hidden, inputs], seed),
        &random(&[4 * hidden, hidden], seed + 1),
        &random(&[4 * hidden], seed + 2),
        &random(&[4 * hidden], seed + 3),
    )
    .unwrap()
}

/// Computes one step of one sample by the formulas.
fn plain(cell: &LstmCell, x: &[f64], h: &[f64], c: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let params = cell.parameters();
    let [weight_ih, weight_hh, bias_ih, bias_hh] = [0, 1, 2, 3].map(|index| numbers(&params[index].value()));
    let gate = |gate: usize, position: usize| {
        let row = gate * h.len() + position;
        let dot = |weight: &[f64], x: &[f64]| -> f64 {
            let row = &weight[row * x.len()..][..x.len()];
            row.iter().zip(x).map(|(a, b)| a * b).sum()
        };
        dot(&weight_ih, x) + bias_ih[row] + dot(&weight_hh, h) + bias_hh[row]
    };
    let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
    let cells: Vec<f64> = (0..h.len())
        .map(|at| logistic(gate(1, at)) * c[at] + logistic(gate(0, at)) * gate(2, at).tanh())
        .collect();
    let hidden = (0..h.len())
        .map(|at| logistic(gate(3, at)) * cells[at].tanh())
        .collect();
    (hidden, cells)
}

#[test]
fn a_step_matches_the_formulas() {
    let cell = cell(3, 2, 1);
    let (x, h, c) = (random(&[2, 3], 9), random(&[2, 2], 10), random(&[2, 2], 11));
    let state = LstmState {
        hidden: h.clone(),
        cell: c.clone(),
    };
    let after = cell.step(&x, &state).unwrap();
    let (x, h, c) = (numbers(&x), numbers(&h), numbers(&c));
    let (mut hidden, mut cells) = (Vec::new(), Vec::new());
    for sample in 0..2 {
        let (h, c) = (&h[2 * sample..][..2], &c[2 * sample..][..2]);
        let (h, c) = plain(&cell, &x[3 * sample..][..3], h, c);
        hidden.extend(h);
        cells.extend(c);
    }
    near(&after.hidden, &hidden, 1e-12);
    near(&after.cell, &cells, 1e-12);
}

#[test]
fn a_sequence_matches_its_steps() {
    let lstm = Lstm::from_cells(vec![cell(3, 2, 1), cell(2, 4, 5)]).unwrap();
    let x = random(&[5, 2, 3], 9);
    let (outputs, ends) = lstm.run(&x, None).unwrap();
    let (first, second) = (cell(3, 2, 1), cell(2, 4, 5));
    let (mut a, mut b) = (first.zero_state(2).unwrap(), second.zero_state(2).unwrap());
    for step in 0..5 {
        a = first.step(&x.get(step).unwrap(), &a).unwrap();
        b = second.step(&a.hidden, &b).unwrap();
        near(&outputs.get(step).unwrap(), &numbers(&b.hidden), 1e-12);
    }
    near(&ends[0].hidden, &numbers(&a.hidden), 1e-12);
    near(&ends[1].cell, &numbers(&b.cell), 1e-12);

    // Two halves, the second from the final state of the first, match the whole.
    let (_, half) = lstm.run(&x.narrow(0, 0, 2).unwrap(), None).unwrap();
    let (rest, _) = lstm.run(&x.narrow(0, 2, 3).unwrap(), Some(&half)).unwrap();
    near(&rest, &numbers(&outputs.narrow(0, 2, 3).unwrap()), 1e-12);
}

#[test]
fn gradients_match_finite_differences() {
    let cell = cell(3, 2, 1);
    check_module(&cell, &random(&[2, 3], 9));
    let both = |state: LstmState| -> Result<Tensor> { Ok((state.hidden * 0.3)?.add(&state.cell)?) };
    let inputs = [random(&[2, 3], 9), random(&[2, 2], 10), random(&[2, 2], 11)];
    let step = |inputs: &[Tensor]| {
        let state = LstmState {
            hidden: inputs[1].clone(),
            cell: inputs[2].clone(),
        };
        both(cell.step(&inputs[0], &state)?)
    };
    check(&inputs, |inputs| {
        let y = step(inputs)?;
        let tracked = inputs.iter().any(Tensor::track_op);
        Ok(if tracked { y } else { y.detach() })
    });
    check_parameters(&cell, || step(&inputs));
}

#[test]
fn gradients_flow_through_time_and_layers() {
    let lstm = Lstm::from_cells(vec![cell(3, 2, 1), cell(2, 2, 5)]).unwrap();
    let x = random(&[4, 2, 3], 9);
    check_module(&lstm, &x);
    let states = [random(&[2, 2], 10), random(&[2, 2], 11)];
    let run = |x: &Tensor| -> Result<Tensor> {
        let state = LstmState {
            hidden: states[0].clone(),
            cell: states[1].clone(),
        };
        let (outputs, ends) = lstm.run(x, Some(&[state.clone(), state]))?;
        // The final memories too, which the outputs alone do not reach.
        Ok(outputs
            .broadcast_add(&ends[0].cell)?
            .broadcast_mul(&ends[1].cell)?)
    };
    check_parameters(&lstm, || run(&x));
}

#[test]
fn a_detached_state_ends_the_gradient() {
    let cell = LstmCell::new(2, 2, &mut Rng::new(0)).unwrap();
    let x = Tensor::ones((1, 2), DType::F32, &Device::Cpu).unwrap();
    let state = cell.step(&x, &cell.zero_state(1).unwrap()).unwrap();
    assert!(state.cell.track_op());
    assert!(!state.detach().cell.track_op() && !state.detach().hidden.track_op());
}

#[test]
fn names_match_torch() {
    let names = |module: &dyn Module| -> Vec<String> {
        module
            .named_parameters()
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    };
    let mut rng = Rng::new(0);
    let cell = LstmCell::new(3, 2, &mut rng).unwrap();
    assert_eq!(names(&cell), ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]);
    let lstm = Lstm::new(3, 2, 2, &mut rng).unwrap();
    assert_eq!(names(&lstm)[..2], ["weight_ih_l0", "weight_hh_l0"]);
    assert_eq!(names(&lstm)[6..], ["bias_ih_l1", "bias_hh_l1"]);
}

#[test]
fn wrong_shapes_are_errors() {
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
    let mut rng = Rng::new(0);
    let cell = LstmCell::new(3, 2, &mut rng).unwrap();
    let state = cell.zero_state(4).unwrap();
    for shape in [&[4, 2][..], &[5, 3], &[3], &[1, 4, 3]] {
        let error = cell.step(&zeros(shape), &state).unwrap_err();
        assert!(matches!(error.nn(), Some(NnError::Input { .. })), "{error}");
    }
    assert!(cell.forward(&zeros(&[])).is_err());
    let lstm = Lstm::new(3, 2, 2, &mut rng).unwrap();
    assert!(lstm.forward(&zeros(&[0, 4, 3])).is_err());
    assert!(lstm.run(&zeros(&[5, 4, 3]), Some(&[state])).is_err());
    assert!(Lstm::new(3, 2, 0, &mut rng).is_err());
    assert!(LstmCell::from_tensors(&zeros(&[8, 3]), &zeros(&[8, 3]), &zeros(&[8]), &zeros(&[8])).is_err());
}
