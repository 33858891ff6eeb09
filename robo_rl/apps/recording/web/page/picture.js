// A camera's picture on a wall 1.5 m before the operator, for headsets that do not show the room.
const VERTEX = `attribute vec2 at; uniform mat4 place; uniform float wide; varying vec2 uv;
void main() { uv = vec2(0.5 + at.x, 0.5 - at.y); gl_Position = place * vec4(1.2 * wide * at.x, 1.2 * at.y, -1.5, 1.0); }`;
const FRAGMENT = "precision mediump float; uniform sampler2D picture; varying vec2 uv; void main() { gl_FragColor = texture2D(picture, uv); }";

export class Picture {
  constructor(gl, canvas) {
    Object.assign(this, { gl, canvas, program: gl.createProgram() });
    for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(this.program, shader);
    }
    gl.bindAttribLocation(this.program, 0, "at");
    gl.linkProgram(this.program);
    if (!gl.getProgramParameter(this.program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(this.program));
    this.corners = gl.createBuffer();
    gl.bindBuffer(gl.ARRAY_BUFFER, this.corners);
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array([-0.5, -0.5, 0.5, -0.5, -0.5, 0.5, 0.5, 0.5]), gl.STATIC_DRAW);
    this.texture = gl.createTexture();
  }

  draw(layer, views) {
    const { gl, canvas, program } = this;
    gl.useProgram(program);
    gl.bindTexture(gl.TEXTURE_2D, this.texture);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, canvas);
    for (const name of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, name, gl.CLAMP_TO_EDGE);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.LINEAR);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.corners);
    gl.enableVertexAttribArray(0);
    gl.vertexAttribPointer(0, 2, gl.FLOAT, false, 0, 0);
    gl.uniform1f(gl.getUniformLocation(program, "wide"), canvas.width / canvas.height);
    for (const view of views) {
      const box = layer.getViewport(view);
      gl.viewport(box.x, box.y, box.width, box.height);
      gl.uniformMatrix4fv(gl.getUniformLocation(program, "place"), false, times(view.projectionMatrix, view.transform.inverse.matrix));
      gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
    }
  }
}

// Product of two matrices of 16 numbers, column by column.
function times(a, b) {
  const found = new Float32Array(16);
  for (let column = 0; column < 4; column += 1) {
    for (let row = 0; row < 4; row += 1) {
      for (let k = 0; k < 4; k += 1) found[4 * column + row] += a[4 * k + row] * b[4 * column + k];
    }
  }
  return found;
}
