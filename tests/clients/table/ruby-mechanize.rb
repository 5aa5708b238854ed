# Mechanize knows no proxy but the one that it is given.
require 'mechanize'

agent = Mechanize.new
agent.set_proxy(*URI(ENV['https_proxy']).select(:host, :port)) if ENV['WITH_PROXY']
ARGV.each do |url|
  puts "#{agent.get(url).code} #{url}"
rescue Mechanize::ResponseCodeError => e
  puts "#{e.response_code} #{url}"
rescue StandardError => e
  puts "000 #{url} #{e.message}"
end
