//! Every shape of function that can be remote.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;

use telegrad::prelude::*;

#[remote]
fn nothing() {}

#[remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[remote(inline)]
fn quick(x: u8) -> u8 {
    x
}

#[remote(name = "shorter", inline)]
fn a_longer_name(x: Tensor) -> Result<Tensor> {
    Ok((x * 2.0)?)
}

#[remote]
async fn later(x: Vec<Option<String>>) -> Result<HashMap<String, Tensor>> {
    Err(Error::other(format!("{x:?}")))
}

#[remote]
fn boxed(x: i64) -> Pin<Box<dyn Future<Output = i64> + Send>> {
    Box::pin(async move { x })
}

#[remote]
fn own_error(x: i64) -> std::result::Result<i64, String> {
    Err(x.to_string())
}

#[allow(clippy::too_many_arguments, reason = "as many as there may be")]
#[remote]
fn twelve(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8, i: u8, j: u8, k: u8, l: u8) -> u8 {
    a + b + c + d + e + f + g + h + i + j + k + l
}

mod inner {
    use telegrad::prelude::*;

    #[remote]
    pub(crate) fn add(a: f32, (b, c): (f32, f32)) -> f32 {
        a + b + c
    }
}

struct Net {
    scale: f64,
}

#[remote(name = "net")]
impl Net {
    fn new(scale: f64) -> Result<Self> {
        Ok(Self { scale })
    }

    fn forward(&self, x: Tensor) -> Result<Tensor> {
        Ok((x * self.scale)?)
    }

    fn set(&mut self, scale: f64) {
        self.scale = scale;
    }

    async fn name() -> String {
        "net".into()
    }

    #[remote(name = "the answer", inline)]
    fn answer() -> u8 {
        42
    }

    #[remote(skip)]
    fn borrowed(&self) -> &f64 {
        &self.scale
    }
}

telegrad::register!(std::cmp::min::<i64>, name = "min");

#[test]
fn every_shape_of_function_can_be_called() -> Result<()> {
    let options = Options::default().init_method("mem://pass?rank=0&world_size=1");
    let world = telegrad::init_with("alone", options)?;
    world.rpc_sync("alone", nothing, ())?;
    assert_eq!(world.rpc_sync("alone", add, (1, 2))?, 3);
    assert_eq!(world.rpc_sync("alone", quick, (1,))?, 1);
    let x = Tensor::new(2f32, &Device::Cpu)?;
    assert_eq!(
        world.rpc_sync("alone", a_longer_name, (x,))?.to_scalar::<f32>()?,
        4.0
    );
    assert!(world.rpc_sync("alone", later, (vec![None],)).is_err());
    assert_eq!(world.rpc_sync("alone", boxed, (3,))?, 3);
    assert!(world.rpc_sync("alone", own_error, (1,)).is_err());
    assert_eq!(
        world.rpc_sync("alone", twelve, (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1))?,
        12
    );
    assert_eq!(world.rpc_sync("alone", inner::add, (1.0, (2.0, 3.0)))?, 6.0);
    assert_eq!(world.rpc_sync("alone", Net::name, ())?, "net");
    assert_eq!(world.rpc_sync("alone", Net::answer, ())?, 42);
    assert_eq!(world.rpc_sync("alone", std::cmp::min::<i64>, (3, 4))?, 3);

    // Local calls still work.
    let mut net = Net::new(1.0)?;
    net.set(3.0);
    assert_eq!((add(1, 2), *net.borrowed()), (3, 3.0));
    let _ = net.forward(Tensor::new(1f32, &Device::Cpu)?)?;
    world.shutdown()
}
