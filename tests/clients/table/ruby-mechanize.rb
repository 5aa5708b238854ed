# Mechanize knows no proxy but the one that it is given.
require 'mechanize'

agent = Mechanize.new
proxy = URI(ENV['https_proxy']) if ENV['WITH_PROXY']
agent.set_proxy(proxy.host, proxy.port, proxy.user, proxy.password) if proxy
ARGV.each do |url|
  puts "#{agent.get(url).code} #{url}"
rescue Mechanize::ResponseCodeError => e
  puts "#{e.response_code} #{url}"
rescue StandardError => e
  puts "000 #{url} #{e.message}"
end
