//! What the pictures of measurements have in common: bars, one below the other, each with its name and its figure.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
pub use plotters::style::RGBColor;
pub use plotters::style::text_anchor::HPos;
use plotters::style::text_anchor::{Pos, VPos};

/// The height of a bar with the space around it, in pixels.
pub const LINE: i32 = 22;
/// The colour of what is wireboot's.
pub const OURS: RGBColor = RGBColor(0, 114, 178);
/// The colour of what is others'.
pub const OTHERS: RGBColor = RGBColor(170, 170, 170);

const INK: RGBColor = RGBColor(40, 40, 40);
const FAINT: RGBColor = RGBColor(215, 215, 215);

/// A picture under way. Places are pixels from the top left.
pub struct Chart<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

impl<'a> Chart<'a> {
    /// An empty picture of this width and height.
    ///
    /// # Errors
    /// When it cannot be drawn on.
    pub fn new(file: &'a Path, (width, height): (i32, i32)) -> Result<Self, Box<dyn Error>> {
        let size = (width.unsigned_abs(), height.unsigned_abs());
        let area = SVGBackend::new(file, size).into_drawing_area();
        area.fill(&WHITE)?;
        Ok(Self { area })
    }

    /// Writes `text` of this size beside `at`.
    ///
    /// # Errors
    /// When it cannot be drawn.
    pub fn text(
        &self,
        text: &str,
        at: (i32, i32),
        size: i32,
        side: HPos,
    ) -> Result<(), Box<dyn Error>> {
        let style = ("sans-serif", size, &INK)
            .into_text_style(&self.area)
            .pos(Pos::new(side, VPos::Center));
        Ok(self.area.draw(&Text::new(text, at, style))?)
    }

    /// A line of the scale, from `top` to `bottom`.
    ///
    /// # Errors
    /// When it cannot be drawn.
    pub fn grid(&self, x: i32, top: i32, bottom: i32) -> Result<(), Box<dyn Error>> {
        let line = PathElement::new(vec![(x, top), (x, bottom)], FAINT);
        Ok(self.area.draw(&line)?)
    }

    /// A filled rectangle between two corners.
    ///
    /// # Errors
    /// When it cannot be drawn.
    pub fn rectangle(
        &self,
        corners: [(i32, i32); 2],
        color: RGBColor,
    ) -> Result<(), Box<dyn Error>> {
        Ok(self.area.draw(&Rectangle::new(corners, color.filled()))?)
    }

    /// A bar below `top` with its figure behind it, and its name left of where all bars begin.
    ///
    /// # Errors
    /// When it cannot be drawn.
    pub fn bar(
        &self,
        bar: &Bar<'_>,
        (left, top): (i32, i32),
        (from, to): (i32, i32),
    ) -> Result<(), Box<dyn Error>> {
        let middle = top + LINE / 2 - 2;
        self.text(bar.name, (left - 10, middle), 14, HPos::Right)?;
        self.rectangle([(from, top), (to, top + LINE - 5)], bar.color)?;
        self.text(bar.figure, (to + 6, middle), 14, HPos::Left)
    }

    /// Writes the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(&self) -> Result<(), Box<dyn Error>> {
        Ok(self.area.present()?)
    }
}

/// What a bar stands for.
pub struct Bar<'a> {
    /// The text left of it.
    pub name: &'a str,
    /// The text right of it, such as a speed.
    pub figure: &'a str,
    /// [`OURS`], [`OTHERS`], or another.
    pub color: RGBColor,
}
