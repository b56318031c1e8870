"use strict";
// What the timeline draws with: one pen for the screen, one for a file, with the same few strokes.
jt.FONT = "system-ui, sans-serif";

jt.CanvasPen = class {
  constructor(context) { this.c = context; }
  rect(x, y, width, height, color, alpha = 1) {
    this.c.globalAlpha = alpha; this.c.fillStyle = color; this.c.fillRect(x, y, width, height); this.c.globalAlpha = 1;
  }
  line(points, color, width = 1) {
    this.c.strokeStyle = color; this.c.lineWidth = width; this.c.beginPath();
    for (let i = 0, begin = true; i < points.length; i += 2) {
      if (Number.isNaN(points[i])) { begin = true; continue; }
      if (begin) this.c.moveTo(points[i], points[i + 1]); else this.c.lineTo(points[i], points[i + 1]);
      begin = false;
    }
    this.c.stroke();
  }
  text(x, y, text, color, { size = 11, align = "left", alpha = 1, bold = false } = {}) {
    this.c.globalAlpha = alpha; this.c.fillStyle = color; this.c.textAlign = align; this.c.font = `${bold ? "bold " : ""}${size}px ${jt.FONT}`;
    this.c.fillText(text, x, y); this.c.globalAlpha = 1;
  }
};

// A pen for a canvas of this height in the page, in the pixels of the screen.
jt.penOf = (canvas, height) => {
  const ratio = window.devicePixelRatio || 1, context = canvas.getContext("2d");
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(canvas.clientWidth * ratio);
  canvas.height = Math.round(height * ratio);
  context.scale(ratio, ratio);
  return new jt.CanvasPen(context);
};

// What paints on a pen of some width, as a file.
jt.saveDrawing = (drawing, name) => {
  const width = drawing.canvas.clientWidth, pen = new jt.SvgPen(width, drawing.height);
  drawing.paint(pen, width);
  jt.save(`${drawing.simulated ? "SIMULATED-" : ""}${name}.svg`, pen.file(), "image/svg+xml");
};

jt.SvgPen = class {
  constructor(width, height) { this.size = [width, height]; this.parts = []; }
  rect(x, y, width, height, color, alpha = 1) {
    this.parts.push(`<rect x="${x.toFixed(2)}" y="${y.toFixed(2)}" width="${width.toFixed(2)}" height="${height.toFixed(2)}" fill="${color}"${alpha < 1 ? ` opacity="${alpha.toFixed(2)}"` : ""}/>`);
  }
  line(points, color, width = 1) {
    let path = "";
    for (let i = 0, begin = true; i < points.length; i += 2) {
      if (Number.isNaN(points[i])) { begin = true; continue; }
      path += `${begin ? "M" : "L"}${points[i].toFixed(2)} ${points[i + 1].toFixed(2)}`;
      begin = false;
    }
    this.parts.push(`<path d="${path}" fill="none" stroke="${color}" stroke-width="${width}"/>`);
  }
  text(x, y, text, color, { size = 11, align = "left", alpha = 1, bold = false } = {}) {
    const safe = text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
    const anchor = { left: "start", center: "middle", right: "end" }[align];
    this.parts.push(`<text x="${x.toFixed(2)}" y="${y.toFixed(2)}" fill="${color}" font-size="${size}" text-anchor="${anchor}"${bold ? ' font-weight="bold"' : ""}${alpha < 1 ? ` opacity="${alpha}"` : ""}>${safe}</text>`);
  }
  file() {
    const [width, height] = this.size;
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="${jt.FONT}">${this.parts.join("")}</svg>`;
  }
};
