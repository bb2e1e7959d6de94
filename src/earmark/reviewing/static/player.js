// Plays parts of a recording: an audio element, whose sound passes through a band-pass filter.

export class Player {
  /** @param {HTMLAudioElement} audio @param {(at: number | null, isPlaying: boolean) => void} onMove */
  constructor(audio, onMove) {
    this.audio = audio;
    this.onMove = onMove;
    this.begin = 0;
    this.end = 0;
    this.recording = -1;
    this.speed = 1;
    this.isLooping = false;
    /** @type {[number, number] | null} */
    this.band = null;
    /** @type {{context: AudioContext, low: BiquadFilterNode[], high: BiquadFilterNode[]} | null} */
    this.graph = null;
    audio.addEventListener("ended", () => this.onMove(this.end, false));
    audio.addEventListener("pause", () => this.onMove(this.at, false));
    audio.addEventListener("playing", () => this.follow());
  }

  get at() { return this.begin + this.audio.currentTime; }
  get isPlaying() { return !this.audio.paused && !this.audio.ended; }

  /** @param {number} recording @param {number} begin @param {number} end @returns {Promise<void>} */
  async play(recording, begin, end) {
    this.recording = recording;
    this.begin = begin;
    this.end = end;
    this.audio.src = `api/recordings/${recording}/sound.wav?onset=${begin.toFixed(4)}&offset=${end.toFixed(4)}`;
    this.audio.loop = this.isLooping;
    this.audio.preservesPitch = false; // slower sound is lower: ultrasound becomes audible
    this.audio.playbackRate = this.speed;
    this.connect();
    await this.audio.play();
  }

  stop() { this.audio.pause(); }

  /** @param {number} speed */
  setSpeed(speed) {
    this.speed = speed;
    this.audio.playbackRate = speed;
    this.tune();
  }

  /** @param {boolean} isLooping */
  setLoop(isLooping) { this.isLooping = isLooping; this.audio.loop = isLooping; }

  /** @param {[number, number] | null} band in Hz */
  setBand(band) { this.band = band; this.tune(); }

  connect() {
    if (!this.graph) {
      const context = new AudioContext(), source = context.createMediaElementSource(this.audio);
      const filters = Array.from({ length: 4 }, () => context.createBiquadFilter());
      [source, ...filters].forEach((node, k, nodes) => node.connect(nodes[k + 1] ?? context.destination));
      this.graph = { context, low: filters.slice(0, 2), high: filters.slice(2) };
    }
    if (this.graph.context.state === "suspended") void this.graph.context.resume();
    this.tune();
  }

  /** Sets the filters to the band as it is heard: slowed-down sound is lower. */
  tune() {
    if (!this.graph) return;
    const most = 0.98 * (this.graph.context.sampleRate / 2);
    const [low, high] = this.band ? this.band.map((hz) => Math.min(most, hz * this.speed)) : [10 * this.speed, most];
    for (const filter of this.graph.low) { filter.type = "highpass"; filter.frequency.value = low; }
    for (const filter of this.graph.high) { filter.type = "lowpass"; filter.frequency.value = high; }
  }

  follow() {
    const step = () => {
      if (!this.isPlaying) return;
      this.onMove(this.at, true);
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }
}
