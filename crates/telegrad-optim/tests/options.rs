//! Validation and encoding of options.

use std::fmt::Debug;

use telegrad_optim::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Algorithm, Anneal, CosineAnnealingLr, LinearLr, OneCycleLr,
    RMSprop, Rprop, Schedule, Sgd, StepLr, WarmUp,
};
use telegrad_wire::{Decoder, Encoder, Wire};

#[track_caller]
fn refused(check: telegrad_rpc::Result<()>, text: &str) {
    let error = check.expect_err(text);
    assert!(error.optim().is_some());
    assert_eq!(error.to_string(), text);
}

#[test]
fn defaults_are_valid() {
    Sgd::default().check().unwrap();
    Adam::default().check().unwrap();
    AdamW::default().check().unwrap();
    Adamax::default().check().unwrap();
    Adagrad::default().check().unwrap();
    Adadelta::default().check().unwrap();
    RMSprop::default().check().unwrap();
    Rprop::default().check().unwrap();
    LinearLr::default().check().unwrap();
}

/// Checks that options, given as changes of the defaults, are refused with a text.
macro_rules! refuses {
    ($($algorithm:ident { $($option:ident: $value:expr),* } => $text:expr;)*) => {
        $(refused($algorithm { $($option: $value,)* ..Default::default() }.check(), $text);)*
    };
}

#[test]
fn invalid_options_of_sgd_are_refused() {
    let nesterov = "sgd: `nesterov` needs `momentum`, and goes without `dampening`";
    refuses! {
        Sgd { lr: -0.5 } => "sgd: `lr` is -0.5, but must be finite and not negative";
        Sgd { lr: f64::NAN } => "sgd: `lr` is NaN, but must be finite and not negative";
        Sgd { momentum: -1.0 } => "sgd: `momentum` is -1, but must be finite and not negative";
        Sgd { weight_decay: -1.0 } => "sgd: `weight_decay` is -1, but must be finite and not negative";
        Sgd { dampening: f64::NAN } => "sgd: `dampening` is NaN, but must be finite";
        Sgd { nesterov: true } => nesterov;
        Sgd { nesterov: true, momentum: 0.5, dampening: 0.1 } => nesterov;
    }
    let valid = Sgd {
        nesterov: true,
        momentum: 0.5,
        ..Sgd::default()
    };
    valid.check().unwrap();
}

#[test]
fn invalid_options_of_adam_and_its_variants_are_refused() {
    let beta = "must be at least 0 and less than 1";
    refuses! {
        Adam { betas: (1.0, 0.9) } => &format!("adam: `betas.0` is 1, but {beta}");
        Adam { betas: (0.9, -0.1) } => &format!("adam: `betas.1` is -0.1, but {beta}");
        Adam { eps: -1.0 } => "adam: `eps` is -1, but must be finite and not negative";
        AdamW { weight_decay: -1.0 } => "adamw: `weight_decay` is -1, but must be finite and not negative";
        Adamax { betas: (0.5, 1.5) } => &format!("adamax: `betas.1` is 1.5, but {beta}");
    }
    let valid = Adam {
        betas: (0.0, 0.0),
        ..Adam::default()
    };
    valid.check().unwrap();
}

#[test]
fn invalid_options_of_the_other_algorithms_are_refused() {
    let negative = "must be finite and not negative";
    refuses! {
        Adagrad { lr_decay: -1.0 } => &format!("adagrad: `lr_decay` is -1, but {negative}");
        Adagrad { initial_accumulator_value: -1.0 } =>
            &format!("adagrad: `initial_accumulator_value` is -1, but {negative}");
        Adadelta { rho: 1.5 } => "adadelta: `rho` is 1.5, but must be from 0 to 1";
        RMSprop { alpha: -1.0 } => &format!("rmsprop: `alpha` is -1, but {negative}");
        RMSprop { momentum: -1.0 } => &format!("rmsprop: `momentum` is -1, but {negative}");
        Rprop { etas: (1.0, 1.2) } => "rprop: `etas.0` is 1, but must be between 0 and 1";
        Rprop { etas: (0.5, 1.0) } => "rprop: `etas.1` is 1, but must be finite and more than 1";
        Rprop { step_sizes: (2.0, 1.0) } => "rprop: the smallest of `step_sizes` is more than the largest";
    }
}

#[test]
fn invalid_options_of_schedules_are_refused() {
    refused(
        StepLr::new(0).check(),
        "step_lr: `step_size` is 0, but must be at least 1",
    );
    refused(
        CosineAnnealingLr::new(0).check(),
        "cosine_annealing_lr: `t_max` is 0, but must be at least 1",
    );
    let linear = LinearLr {
        start_factor: 0.0,
        ..LinearLr::default()
    };
    refused(
        linear.check(),
        "linear_lr: `start_factor` is 0, but must be more than 0 and at most 1",
    );
    let warm_up = WarmUp {
        first: linear,
        then: StepLr::new(3),
    };
    refused(
        warm_up.check(),
        "linear_lr: `start_factor` is 0, but must be more than 0 and at most 1",
    );
    let warm_up = WarmUp {
        first: LinearLr::default(),
        then: StepLr::new(0),
    };
    refused(
        warm_up.check(),
        "step_lr: `step_size` is 0, but must be at least 1",
    );
    let cycle = OneCycleLr {
        pct_start: 1.5,
        ..OneCycleLr::new(0.1, 10)
    };
    refused(
        cycle.check(),
        "one_cycle_lr: `pct_start` is 1.5, but must be from 0 to 1",
    );
    let cycle = OneCycleLr {
        div_factor: 0.0,
        ..OneCycleLr::new(0.1, 10)
    };
    refused(
        cycle.check(),
        "one_cycle_lr: `div_factor` is 0, but must be finite and more than 0",
    );
    refused(
        OneCycleLr::new(0.1, 0).check(),
        "one_cycle_lr: `total_steps` is 0, but must be at least 1",
    );
}

#[test]
fn schedules_have_a_learning_rate_for_every_step() {
    let schedules: [&dyn Schedule; 9] = [
        &StepLr::new(1),
        &StepLr::new(u64::MAX),
        &CosineAnnealingLr::new(1),
        &CosineAnnealingLr::new(u64::MAX),
        &LinearLr::default(),
        &OneCycleLr::new(0.1, 1),
        &OneCycleLr {
            pct_start: 0.0,
            ..OneCycleLr::new(0.1, 10)
        },
        &OneCycleLr {
            pct_start: 1.0,
            three_phase: true,
            ..OneCycleLr::new(0.1, 10)
        },
        &OneCycleLr {
            pct_start: 0.1,
            anneal: Anneal::Linear,
            ..OneCycleLr::new(0.1, 10)
        },
    ];
    for (index, schedule) in schedules.iter().enumerate() {
        schedule.check().unwrap();
        for step in (0..20).chain([1 << 40, u64::MAX]) {
            let lr = schedule.lr(0.1, step);
            assert!(
                (-1e-15..=0.1 + 1e-15).contains(&lr),
                "schedule {index} at {step}: {lr}"
            );
        }
    }
    // The learning rate is constant after the last step.
    let cycle = OneCycleLr::new(0.1, 10);
    assert_eq!(cycle.lr(0.1, 9), cycle.lr(0.1, 1000));
}

fn assert_encodes<T: Wire + serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug>(value: T) {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    let body = encoder.finish().unwrap().body;
    let mut decoder = Decoder::new(&body);
    assert_eq!(T::decode(&mut decoder).unwrap(), value);
    decoder.finish().unwrap();
    let text = serde_json::to_string(&value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), value);
}

#[test]
fn options_are_encoded_and_written_without_loss() {
    // A number that needs all its digits.
    let lr = 0.1 + 0.2;
    assert_encodes(Sgd {
        lr,
        momentum: 0.9,
        nesterov: true,
        ..Sgd::default()
    });
    assert_encodes(Adam {
        lr,
        amsgrad: true,
        ..Adam::default()
    });
    assert_encodes(AdamW {
        lr,
        maximize: true,
        ..AdamW::default()
    });
    assert_encodes(Adamax {
        lr,
        ..Adamax::default()
    });
    assert_encodes(Adagrad {
        lr,
        ..Adagrad::default()
    });
    assert_encodes(Adadelta {
        lr,
        ..Adadelta::default()
    });
    assert_encodes(RMSprop {
        lr,
        centered: true,
        ..RMSprop::default()
    });
    assert_encodes(Rprop {
        lr,
        ..Rprop::default()
    });
    assert_encodes(OneCycleLr {
        anneal: Anneal::Linear,
        ..OneCycleLr::new(lr, 3)
    });
    assert_encodes(WarmUp {
        first: LinearLr::default(),
        then: CosineAnnealingLr::new(7),
    });
    assert_encodes(StepLr::new(3));
}

#[test]
fn options_in_a_file_have_defaults_and_no_unknown_fields() {
    let adam: Adam = serde_json::from_str(r#"{"lr": 0.5}"#).unwrap();
    assert_eq!(
        adam,
        Adam {
            lr: 0.5,
            ..Adam::default()
        }
    );
    let error = serde_json::from_str::<Adam>(r#"{"beta": 0.5}"#).unwrap_err();
    assert!(error.to_string().contains("unknown field `beta`"), "{error}");
}
