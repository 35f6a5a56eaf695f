# For a tap. `make release` fills in url and sha256 of the source archive.
class Bsd < Formula
  desc "Keeps AI-agent session files lean by moving large old values into a store"
  url "@URL@"
  sha256 "@SHA256@"
  license "MIT"

  depends_on "python@3.13"

  def install
    system Formula["python@3.13"].opt_bin/"python3.13", "-m", "venv", libexec
    # The lock file pins what bsd needs; what else it names is for its tests.
    system libexec/"bin/pip", "install", "--constraint", "requirements.lock", "."
    bin.install_symlink libexec/"bin/bsd"
    man1.install "contrib/man/bsd.1"
    bash_completion.install "contrib/completions/bsd.bash" => "bsd"
    zsh_completion.install "contrib/completions/_bsd"
    fish_completion.install "contrib/completions/bsd.fish"
    pkgshare.install "config"
  end

  service do
    run [opt_bin/"bsd", "run"]
    keep_alive successful_exit: false
    throttle_interval 10
    process_type :background
    environment_variables PATH: std_service_path_env
    # bsd's own log is logs/brainsurgeon.log in the root; nobody would rotate another one.
    log_path File::NULL
    error_log_path File::NULL
  end

  def caveats
    <<~EOS
      Either `brew services start bsd` or `bsd service install` starts it at login, not both.
      The macOS side is written to its documentation and has hardly run on a Mac yet.
    EOS
  end

  test do
    assert_match "bsd #{version}", shell_output("#{bin}/bsd --version")
    (testpath/"root/agents/main/sessions").mkpath
    assert_match "sessions", shell_output("#{bin}/bsd --root #{testpath}/root --json sessions")
  end
end
