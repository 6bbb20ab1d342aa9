# Installs a formula as Homebrew does, runs its test, and prints the address of its archive.
#
#   ruby brew.rb FORMULA SYSTEM ARCH    in the unpacked archive, with PREFIX in the environment
require "pathname"

class Formula
  class << self
    attr_reader :address, :sum, :tested, :served

    def desc(text) = (raise text if text.length > 80 || text.match?(/\.$|^(an?|the|taskledger) /i))
    def homepage(_) = nil
    def license(_) = nil
    def sha256(sum) = @sum = sum
    def url(address) = @address = address
    def test(&block) = @tested = block
    def service(&block) = @served = block

    # As brew style: one block a system, macOS first, arm first.
    %w[macos linux arm intel].each do |name|
      define_method("on_#{name}") do |&block|
        blocks = (@within ||= { nil => [] })[@block] ||= []
        raise "on_#{name} follows #{blocks}" if blocks.include?(name) || %w[linux intel].intersect?(blocks - [@block])
        blocks << name
        outer, @block = @block, name
        block.call if ARGV.include?(name)
        @block = outer
      end
    end
  end

  attr_reader :bin
  alias opt_bin bin

  def initialize
    @bin = Pathname(ENV.fetch("PREFIX")) / "bin"
    @bin.mkpath
    bin = @bin
    @bin.define_singleton_method(:install) { |name| (bin / name).write(File.binread(name), perm: 0o755) }
  end

  def version = self.class.address[%r{/releases/download/v([\d.]+)/}, 1]
  def run(command) = (raise "#{command[0]} cannot run" unless command[0].executable?)
  def keep_alive(_) = nil
  def shell_output(command) = `#{command}`.tap { raise "#{command}: #{$?}" unless $?.success? }
  def assert_match(want, got) = (raise "#{got} has no #{want}" unless got.include?(want))

  def generate_completions_from_executable(*command)
    %w[bash zsh fish].each { |shell| raise "no #{shell}" if shell_output([*command, shell].join(" ")).empty? }
  end
end

load ARGV[0]
formula = Taskledger.new
formula.install
formula.instance_eval(&Taskledger.served)
formula.instance_eval(&Taskledger.tested)
puts Taskledger.address, Taskledger.sum
